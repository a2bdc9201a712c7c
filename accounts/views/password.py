"""Settings page on which a person changes their own password."""

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth import authenticate, views
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.urls import reverse_lazy

from accounts import people
from accounts.access import attach_membership


class PasswordForm(PasswordChangeForm):
    """The current password, and the new one twice."""

    request: HttpRequest

    def clean_old_password(self) -> str:
        """Check the current password as a sign-in: the fifth wrong one locks the name."""
        password = str(self.cleaned_data["old_password"])
        if (
            authenticate(self.request, username=self.user.get_username(), password=password)
            != self.user
        ):
            raise forms.ValidationError(
                self.error_messages["password_incorrect"], code="password_incorrect"
            )
        return password

    def clean(self) -> dict[str, Any] | None:
        """Reject the current password as the new one, because another person may know it."""
        cleaned = super().clean()
        old, new = (self.cleaned_data.get(name) for name in ("old_password", "new_password1"))
        if new and new == old:
            self.add_error("new_password1", "This is your current password. Choose another.")
        return cleaned

    def save(self, commit: bool = True) -> User:
        """Store the password through `people`, which journals the change."""
        people.change_own_password(self.user, self.cleaned_data["new_password1"])
        return self.user


class ChangePassword(views.PasswordChangeView):
    """Change a person's own password, and end their other sign-ins."""

    template_name = "accounts/password.html"
    form_class = PasswordForm
    success_url = reverse_lazy("password")

    def get_form(self, form_class: Any = None) -> PasswordForm:
        """Return the form with its request, since wrong passwords count by client address."""
        form = cast(PasswordForm, super().get_form(form_class))
        form.request = self.request
        return form

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the layout of the person's project, and who else set the password."""
        user = cast(User, self.request.user)
        is_own = people.has_own_password(user)
        if is_own:
            attach_membership(self.request)
        return super().get_context_data(
            is_own=is_own, giver=people.load_password_giver(user), **kwargs
        )

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        """Store the password; people who had to replace it go on to the home page."""
        if not people.has_own_password(cast(User, self.request.user)):
            self.success_url = reverse_lazy("home")
        messages.success(self.request, "Your password was changed. Other browsers were signed out.")
        return super().form_valid(form)


change_password_page = ChangePassword.as_view()
