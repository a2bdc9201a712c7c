"""URLs of the sealed log, as C2SP tlog-tiles names them."""

from django.urls import path

from proofs.views import log

urlpatterns = [
    path("proofs/log/checkpoint", log.checkpoint, name="proofs_checkpoint"),
    path("proofs/log/keys", log.key_chain, name="proofs_keys"),
    path("proofs/log/tile/entries/<path:name>", log.entry_tile, name="proofs_entry_tile"),
    path("proofs/log/tile/<int:level>/<path:name>", log.hash_tile, name="proofs_tile"),
]
