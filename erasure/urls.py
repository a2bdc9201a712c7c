"""Pages of erasure."""

urlpatterns: list[object] = []
