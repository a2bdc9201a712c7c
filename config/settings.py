"""Django settings from the environment. config/variables.py lists the variables."""

import os
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit

from csp.constants import NONE, SELF

from config import logging, secret_keys
from config.docs_site import site_files
from db import url


def _flag(name: str) -> bool:
    return os.environ.get(name, "").lower() in {"1", "true", "yes", "on"}


BASE_DIR = Path(__file__).resolve().parent.parent
# The one place of the version is pyproject.toml; pages and /api/v1/openapi.json show it.
GATEBOOK_VERSION: str = tomllib.loads((BASE_DIR / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]["version"]
VAR_DIR = Path(os.environ.get("GATEBOOK_VAR") or BASE_DIR / "var").absolute()
# Only this user may read the database, its log and the artifacts. Created first, because its
# contents are created with open permissions.
VAR_DIR.mkdir(parents=True, exist_ok=True, mode=0o700)
DEBUG = False

# True when Gatebook is behind an https proxy that sets X-Forwarded-Proto on every request.
HTTPS = _flag("GATEBOOK_HTTPS")

# --- keys -----------------------------------------------------------------------------------------
_keys, _new_keys = secret_keys.load_keys(VAR_DIR / "keys", os.environ)
# They exist only in this process until `manage.py setup` stores them.
GATEBOOK_NEW_KEYS = _new_keys
SECRET_KEY: str | bytes = _keys["secret_key"].hex()
GATEBOOK_PEPPER: bytes = _keys["pepper"]

# --- databases ------------------------------------------------------------------------------------
# Most threads wait for people without a connection (approvals/gates/listener.py), which costs
# little.
WEB_THREADS = int(os.environ.get("GATEBOOK_THREADS") or 256)
# Limits of clients per process (config/http_server/limits.py). No thread waits for a client.
GATEBOOK_CONNECTIONS = int(os.environ.get("GATEBOOK_CONNECTIONS") or 4096)
GATEBOOK_CONNECTIONS_PER_ADDRESS = int(os.environ.get("GATEBOOK_CONNECTIONS_PER_ADDRESS") or 256)
# Proxies' connections are not counted; the clients in their X-Forwarded-For are.
GATEBOOK_PROXIES = frozenset(
    address.strip()
    for address in os.environ.get("GATEBOOK_PROXIES", "127.0.0.1,::1").split(",")
    if address.strip()
)
# The time for a request line and headers, and the bytes of a body or response that a client must
# move in that time.
GATEBOOK_CLIENT_TIMEOUT_S = float(os.environ.get("GATEBOOK_CLIENT_TIMEOUT_S") or 10)
GATEBOOK_CLIENT_BYTES_PER_S = int(os.environ.get("GATEBOOK_CLIENT_BYTES_PER_S") or 8192)
# Total bytes of arriving bodies and slowly read responses in files below var/spool.
GATEBOOK_SPOOL_BYTES = int(os.environ.get("GATEBOOK_SPOOL_BYTES") or 1024 * 1024 * 1024)
# Connections of one process to PostgreSQL. A request that gets none in a few seconds is answered
# 503.
POOL_SIZE = min(WEB_THREADS + 2, 24)
# Owner commands (migrations, VACUUM) may use another role. The application's may only insert into
# history.
_owner_url = os.environ.get("DATABASE_OWNER_URL", "")
_OWNER_COMMANDS = {"migrate", "setup", "rebuild", "vacuum_erased", "audit_role"}
_as_owner = bool(_owner_url) and len(sys.argv) > 1 and sys.argv[1] in _OWNER_COMMANDS
try:
    DATABASES = {
        "default": url.build_database_settings(
            _owner_url if _as_owner else os.environ.get("DATABASE_URL", ""),
            VAR_DIR,
            BASE_DIR,
            POOL_SIZE,
        )
    }
except ValueError as _reason:
    # All programs load this module. Show the sentence, not a traceback.
    raise SystemExit(f"gatebook: {_reason}") from None
# The role that `manage.py setup` grants the application's rights; empty with a single role.
APPLICATION_ROLE = (
    (urlsplit(os.environ.get("DATABASE_URL", "")).username or "") if _as_owner else ""
)
# The role of DATABASE_OWNER_URL; empty with a single role, and in what the supervisor starts.
OWNER_ROLE = urlsplit(_owner_url).username or ""
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- apps -----------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "accounts.apps.AccountsConfig",  # before Django's accounts, whose `changepassword` it replaces
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "django_filters",
    "csp",
    "axes",
    "db.apps.DbConfig",
    "journal.apps.JournalConfig",
    "web.apps.WebConfig",
    "sessions.apps.SessionsConfig",
    "ledger.apps.LedgerConfig",
    "approvals.apps.ApprovalsConfig",
    "notifications.apps.NotificationsConfig",
    "display.apps.DisplayConfig",
    "proofs.apps.ProofsConfig",
    "monitoring.apps.MonitoringConfig",
    "investigation.apps.InvestigationConfig",
    "pages.apps.PagesConfig",
    "erasure.apps.ErasureConfig",
    "retention.apps.RetentionConfig",
    "api.apps.ApiConfig",
    "hooks.apps.HooksConfig",
    "traces.apps.TracesConfig",
    "importers.apps.ImportersConfig",
    "rebuild.apps.RebuildConfig",
    "config.apps.ConfigConfig",
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "config.docs_site.site_middleware.SiteMiddleware",
    "config.middleware.CompressedPagesMiddleware",
    "csp.middleware.CSPMiddleware",
    "config.middleware.NoStoreMiddleware",
    "config.middleware.BusyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "config.middleware.SignInClockMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "config.middleware.OwnPasswordMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

# --- people ---------------------------------------------------------------------------------------
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "accounts.auth_backend.MemberBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "/sign-in/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/sign-in/"
# Five wrong passwords for one name from one address lock that pair for 15 minutes. The name alone
# is never locked, because anybody could then lock anybody out.
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = 0.25
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_TEMPLATE = "accounts/locked.html"
AXES_HTTP_RESPONSE_CODE = 429
AXES_VERBOSE = False
AXES_CLIENT_IP_CALLABLE = "accounts.sign_ins.get_client_address"
AXES_USERNAME_CALLABLE = "accounts.sign_ins.counted_name"
# The rest of the form is stored with a wrong password, but no secrets.
AXES_SENSITIVE_PARAMETERS = [
    "username",
    "ip_address",
    "old_password",
    "new_password1",
    "new_password2",
]
# Set for a proxy that appends its client's address to X-Forwarded-For on every request.
GATEBOOK_FORWARDED_FOR = _flag("GATEBOOK_FORWARDED_FOR")
SIGN_IN_IDLE_S = 30 * 60
SIGN_IN_ABSOLUTE_S = 12 * 60 * 60

# --- browsers -------------------------------------------------------------------------------------
ALLOWED_HOSTS = [
    "localhost",
    "127.0.0.1",
    "[::1]",
    *(host.strip() for host in os.environ.get("GATEBOOK_HOSTS", "").split(",") if host.strip()),
]
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "font-src": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}
X_FRAME_OPTIONS = "DENY"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
SESSION_ENGINE = "accounts.sign_in_store"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = SIGN_IN_ABSOLUTE_S
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
# The prefix makes browsers reject the cookie from any other host or over http. It requires https.
SESSION_COOKIE_NAME = "__Host-gatebook" if HTTPS else "gatebook"
CSRF_COOKIE_NAME = "__Host-gatebook-csrf" if HTTPS else "gatebook-csrf"
CSRF_COOKIE_HTTPONLY = True
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
SECURE_HSTS_SECONDS = 365 * 24 * 60 * 60 if HTTPS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
# The operator decides whether HSTS covers other hosts and a browser's preload list.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

# --- language, time, files ------------------------------------------------------------------------
LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "/static/"
STATICFILES_DIRS = [folder for folder in [BASE_DIR / "static"] if folder.is_dir()]
STATIC_ROOT = VAR_DIR / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
# The documentation site has the policy of its inline parts, and index.html for each folder.
WHITENOISE_INDEX_FILE = True
WHITENOISE_ADD_HEADERS_FUNCTION = site_files.add_site_headers
MEDIA_ROOT = VAR_DIR / "artifacts"
# The most bytes stored of one artifact. Larger ones are known only by their hash.
GATEBOOK_ARTIFACT_BYTES = int(os.environ.get("GATEBOOK_ARTIFACT_BYTES") or 64 * 1024 * 1024)
# Seconds that a page may search before it stops with a message.
GATEBOOK_SEARCH_TIMEOUT_S = float(os.environ.get("GATEBOOK_SEARCH_TIMEOUT_S") or 5)
# How many search queries run at once; 0 for the default of display/query_slots.py.
GATEBOOK_SEARCH_PLACES = max(int(os.environ.get("GATEBOOK_SEARCH_PLACES") or 0), 0)
# The limit of forms. Artifact bytes have their own streaming endpoint.
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024

# --- erasure --------------------------------------------------------------------------------------
# One line for each erasure, outside of the database: a restored backup is erased again from it.
GATEBOOK_ERASURE_JOURNAL = Path(
    os.environ.get("GATEBOOK_ERASURE_JOURNAL") or VAR_DIR / "erasures.jsonl"
).absolute()

# --- notifications --------------------------------------------------------------------------------
# The public address, for links in notifications.
GATEBOOK_URL = (
    os.environ.get("GATEBOOK_URL") or f"http://127.0.0.1:{os.environ.get('PORT') or 8000}"
).rstrip("/")
# Without a mail server, e-mail notifications are written to files.
_smtp = urlsplit(os.environ.get("GATEBOOK_SMTP", ""))
EMAIL_BACKEND = (
    f"django.core.mail.backends.{'smtp' if _smtp.hostname else 'filebased'}.EmailBackend"
)
EMAIL_FILE_PATH = VAR_DIR / "mail"
EMAIL_HOST, EMAIL_PORT = (
    _smtp.hostname or "",
    _smtp.port or (465 if _smtp.scheme == "smtps" else 587),
)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_smtp.username or ""), unquote(_smtp.password or "")
EMAIL_USE_SSL, EMAIL_USE_TLS = _smtp.scheme == "smtps", _smtp.scheme == "smtp+tls"
EMAIL_TIMEOUT = 5
DEFAULT_FROM_EMAIL = os.environ.get("GATEBOOK_MAIL_FROM") or "gatebook@localhost"
# Webhooks go only to these hosts (`host` or `host:port`, by commas), at public addresses.
GATEBOOK_WEBHOOK_HOSTS = frozenset(
    host.strip().lower()
    for host in os.environ.get("GATEBOOK_WEBHOOK_HOSTS", "").split(",")
    if host.strip()
)
# For trials: also to this machine, and over plain http.
GATEBOOK_WEBHOOK_LOOPBACK = _flag("GATEBOOK_WEBHOOK_LOOPBACK")

# --- proofs ---------------------------------------------------------------------------------------
# Where tree heads are published (proofs/anchors/anchor_settings.py).
GATEBOOK_ANCHORS = os.environ.get("GATEBOOK_ANCHORS", "")

# --- jobs -----------------------------------------------------------------------------------------
CELERY_BROKER_URL = os.environ.get("CELERY_BROKER_URL") or "filesystem://"
CELERY_FOLDER = VAR_DIR / "celery"

# --- logs -----------------------------------------------------------------------------------------
LOGGING = logging.logging_config(os.environ.get("GATEBOOK_LOG_LEVEL", "INFO").upper())
logging.configure_structlog()
