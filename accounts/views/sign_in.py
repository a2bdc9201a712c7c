"""Sign-in and sign-out."""

from django.contrib.auth import views
from django.contrib.auth.forms import AuthenticationForm


class SignInForm(AuthenticationForm):
    """Name and password."""

    error_messages = {
        "invalid_login": "This name and password do not belong together. Both are case-sensitive.",
        "inactive": "This person may no longer sign in.",
    }


class SignIn(views.LoginView):
    """The sign-in page. People who are signed in are redirected."""

    template_name = "accounts/sign_in.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True


sign_in_page = SignIn.as_view()
sign_out_page = views.LogoutView.as_view(http_method_names=["post", "options"])
