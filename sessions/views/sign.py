"""Signing in and out, and one's own password."""

from typing import Any

from django.contrib import messages
from django.contrib.auth import views
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.urls import reverse_lazy

from sessions import people
from sessions.access import attach


class SignInForm(AuthenticationForm):
    """Name and password."""

    error_messages = {
        "invalid_login": "This name and password do not belong together. Both are case-sensitive.",
        "inactive": "This person may no longer sign in.",
    }


class SignIn(views.LoginView):
    """The sign-in page; people who are signed in already go on to where they wanted."""

    template_name = "registration/sign_in.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True


class PasswordForm(PasswordChangeForm):
    """The password of now, and the new one twice."""

    def save(self, commit: bool = True) -> User:
        """Store it through the verb, so that the change is in the book."""
        people.change_password(self.user, self.cleaned_data["new_password1"])
        return self.user


class ChangePassword(views.PasswordChangeView):
    """A person's own new password; every other sign-in of theirs ends with it."""

    template_name = "sessions/password.html"
    form_class = PasswordForm
    success_url = reverse_lazy("password")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Draw the frame of the person's project around the form."""
        attach(self.request)
        return super().get_context_data(**kwargs)

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        """Store it and say so."""
        messages.success(self.request, "Your password was changed. Other browsers were signed out.")
        return super().form_valid(form)


sign_in = SignIn.as_view()
sign_out = views.LogoutView.as_view(http_method_names=["post", "options"])
change_password = ChangePassword.as_view()
