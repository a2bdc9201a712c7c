"""URLs of the pages of proofs."""

from django.urls import path

from proofs.views import proof_pages

urlpatterns = [
    path("proofs/", proof_pages.proofs_page, name="proofs"),
    path("proofs/heads/<int:number>/", proof_pages.head_note, name="head_note"),
    path("proofs/entries/<int:position>/", proof_pages.proof_page, name="proof"),
    path("proofs/entries/<int:position>/proof.json", proof_pages.proof_file, name="proof_file"),
]
