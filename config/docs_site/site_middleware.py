"""WhiteNoise, which also serves a site that was built after the server's start."""

from threading import Lock
from typing import Any, Final

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware

from config.docs_site import site_files

_PREFIX: Final = "/docs/"


class SiteMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """List the files of the site again when it was built again: one `stat` a request to it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._listed = 0
        self._lock = Lock()
        self._list_site()

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer with a file, or pass the request on."""
        if request.path_info.startswith(_PREFIX):
            self._list_site()
        response: HttpResponseBase = super().__call__(request)
        return response

    def _list_site(self) -> None:
        site = site_files.DOCS_FOLDER / settings.GATEBOOK_VERSION
        with self._lock:
            built = site_files.read_build_time(site)
            if built == self._listed:
                return
            for url in [url for url in self.files if url.startswith(_PREFIX)]:
                del self.files[url]
            if built:
                self.add_files(str(site_files.DOCS_FOLDER), prefix=_PREFIX)
            self._listed = built
