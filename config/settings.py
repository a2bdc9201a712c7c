"""All settings of Gatebook, read from the environment. docs/operating.md lists the variables an operator may set."""

import os
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from csp.constants import NONE, SELF

from config import databases, keys, logs


def _flag(name: str) -> bool:
    return os.environ.get(name, "").lower() in {"1", "true", "yes", "on"}


BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = Path(os.environ.get("GATEBOOK_VAR") or BASE_DIR / "var").absolute()
# The database, its log and the artifacts are for this user's eyes only; made first, because its parts are made open.
VAR_DIR.mkdir(parents=True, exist_ok=True, mode=0o700)
DEBUG = False

# True when people reach Gatebook over https: through a proxy that sets X-Forwarded-Proto on every request.
HTTPS = _flag("GATEBOOK_HTTPS")

# --- keys -----------------------------------------------------------------------------------------------------------
_keys, _new_keys = keys.load(VAR_DIR / "keys", os.environ)
# They live in this process alone until `manage.py setup` stores them.
GATEBOOK_NEW_KEYS = _new_keys
SECRET_KEY: str | bytes = _keys["secret_key"].hex()
GATEBOOK_PEPPER: bytes = _keys["pepper"]

# --- databases ------------------------------------------------------------------------------------------------------
# Most of them wait for people and hold no connection (approvals/waker.py): a parked thread costs little.
WEB_THREADS = int(os.environ.get("GATEBOOK_THREADS") or 256)
# What clients may take of one process (config/web/limits.py). No thread waits for a client.
GATEBOOK_CONNECTIONS = int(os.environ.get("GATEBOOK_CONNECTIONS") or 4096)
GATEBOOK_CONNECTIONS_PER_ADDRESS = int(os.environ.get("GATEBOOK_CONNECTIONS_PER_ADDRESS") or 256)
# Their connections are not counted; the clients are that they name in X-Forwarded-For.
GATEBOOK_PROXIES = frozenset(
    address.strip() for address in os.environ.get("GATEBOOK_PROXIES", "127.0.0.1,::1").split(",") if address.strip()
)
# A client has so long for its request line and headers, and must move so many bytes of a body or response in that time.
GATEBOOK_CLIENT_TIMEOUT_S = float(os.environ.get("GATEBOOK_CLIENT_TIMEOUT_S") or 10)
GATEBOOK_CLIENT_BYTES_PER_S = int(os.environ.get("GATEBOOK_CLIENT_BYTES_PER_S") or 8192)
# Bodies that arrive and responses that are read slowly may lie in files below var/spool, so many bytes in all.
GATEBOOK_SPOOL_BYTES = int(os.environ.get("GATEBOOK_SPOOL_BYTES") or 1024 * 1024 * 1024)
# Of one process to PostgreSQL. Whoever finds none free waits a few seconds for one and is then answered 503.
POOL_SIZE = min(WEB_THREADS + 2, 24)
# A command of the owner (migrations) may use another role than the application, which may only insert into history.
_owner_url = os.environ.get("DATABASE_OWNER_URL", "")
_as_owner = bool(_owner_url) and len(sys.argv) > 1 and sys.argv[1] in {"migrate", "setup"}
try:
    DATABASES = {
        "default": databases.entry(
            _owner_url if _as_owner else os.environ.get("DATABASE_URL", ""), VAR_DIR, BASE_DIR, POOL_SIZE
        )
    }
except ValueError as _reason:
    # Every program begins here, and who starts one needs the sentence and not a traceback.
    raise SystemExit(f"gatebook: {_reason}") from None
# Whom `manage.py setup` grants the application's rights to; empty where one role does everything.
APPLICATION_ROLE = (urlsplit(os.environ.get("DATABASE_URL", "")).username or "") if _as_owner else ""
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- the rooms ------------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
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
    "journal.apps.JournalConfig",
    "sessions.apps.SessionsConfig",
    "ledger.apps.LedgerConfig",
    "approvals.apps.ApprovalsConfig",
    "inquiry.apps.InquiryConfig",
    "ingest.apps.IngestConfig",
    "config.apps.ConfigConfig",
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
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

# --- people ---------------------------------------------------------------------------------------------------------
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "sessions.signed_in.MemberBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "/sign-in/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/sign-in/"
# Five wrong passwords for one name from one address lock that pair for 15 minutes; never the name alone, by which
# anybody could lock anybody out.
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = 0.25
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_TEMPLATE = "registration/locked.html"
AXES_HTTP_RESPONSE_CODE = 429
AXES_VERBOSE = False
AXES_CLIENT_IP_CALLABLE = "sessions.sign_ins.address_of"
AXES_USERNAME_CALLABLE = "sessions.sign_ins.counted_name"
# What forms send beside a password is stored with a wrong one; of secrets nothing is.
AXES_SENSITIVE_PARAMETERS = ["username", "ip_address", "old_password", "new_password1", "new_password2"]
# Of a proxy that adds the address of its client to X-Forwarded-For, which it must do on every request.
GATEBOOK_FORWARDED_FOR = _flag("GATEBOOK_FORWARDED_FOR")
SIGN_IN_IDLE_S = 30 * 60
SIGN_IN_ABSOLUTE_S = 12 * 60 * 60

# --- browsers -------------------------------------------------------------------------------------------------------
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
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = SIGN_IN_ABSOLUTE_S
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
# The prefix makes browsers refuse the cookie from any other host or over http; it needs https, so plain names without.
SESSION_COOKIE_NAME = "__Host-gatebook" if HTTPS else "gatebook"
CSRF_COOKIE_NAME = "__Host-gatebook-csrf" if HTTPS else "gatebook-csrf"
CSRF_COOKIE_HTTPONLY = True
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
SECURE_HSTS_SECONDS = 365 * 24 * 60 * 60 if HTTPS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
# Whether HSTS covers the operator's other hosts, and a browser's preload list, is not for one service to decide.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

# --- language, time, files ------------------------------------------------------------------------------------------
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
MEDIA_ROOT = VAR_DIR / "artifacts"
# The most bytes of one artifact that are stored here; larger ones are known by their hash alone.
GATEBOOK_ARTIFACT_BYTES = int(os.environ.get("GATEBOOK_ARTIFACT_BYTES") or 64 * 1024 * 1024)
# How long a person's page may search before it is stopped with a sentence.
GATEBOOK_SEARCH_TIMEOUT_S = float(os.environ.get("GATEBOOK_SEARCH_TIMEOUT_S") or 5)
# How many queries in the search's language run at once; 0 for what inquiry/turns.py thinks right.
GATEBOOK_SEARCH_PLACES = max(int(os.environ.get("GATEBOOK_SEARCH_PLACES") or 0), 0)
# Artifact bytes are streamed by their own door; this bounds what a form may carry.
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024

# --- notices --------------------------------------------------------------------------------------------------------
# Where people reach Gatebook: links in notices begin with it.
GATEBOOK_URL = (os.environ.get("GATEBOOK_URL") or f"http://127.0.0.1:{os.environ.get('PORT') or 8000}").rstrip("/")
# Without a mail server notices by e-mail become files.
_smtp = urlsplit(os.environ.get("GATEBOOK_SMTP", ""))
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if _smtp.hostname else 'filebased'}.EmailBackend"
EMAIL_FILE_PATH = VAR_DIR / "mail"
EMAIL_HOST, EMAIL_PORT = _smtp.hostname or "", _smtp.port or (465 if _smtp.scheme == "smtps" else 587)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_smtp.username or ""), unquote(_smtp.password or "")
EMAIL_USE_SSL, EMAIL_USE_TLS = _smtp.scheme == "smtps", _smtp.scheme == "smtp+tls"
EMAIL_TIMEOUT = 5
DEFAULT_FROM_EMAIL = os.environ.get("GATEBOOK_MAIL_FROM") or "gatebook@localhost"
# Webhooks go to these hosts alone (`host` or `host:port`, by commas), and to public addresses alone.
GATEBOOK_WEBHOOK_HOSTS = frozenset(
    host.strip().lower() for host in os.environ.get("GATEBOOK_WEBHOOK_HOSTS", "").split(",") if host.strip()
)
# For trials: also to this machine itself, and over plain http.
GATEBOOK_WEBHOOK_LOOPBACK = _flag("GATEBOOK_WEBHOOK_LOOPBACK")

# --- jobs -----------------------------------------------------------------------------------------------------------
CELERY_BROKER_URL = os.environ.get("CELERY_BROKER_URL") or "filesystem://"
CELERY_FOLDER = VAR_DIR / "celery"

# --- logs -----------------------------------------------------------------------------------------------------------
LOGGING = logs.logging_config(os.environ.get("GATEBOOK_LOG_LEVEL", "INFO").upper())
logs.configure_structlog()
