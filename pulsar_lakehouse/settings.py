"""Settings, from the environment (`LAKEHOUSE_*`) and one file, `lakehouse.toml`. The environment takes precedence.

A nested value is written `LAKEHOUSE_PULSAR__SERVICE_URL` in the environment and under `[pulsar]` in the file.
Secrets come from the environment only.
"""

import os
import re
import ssl
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.wrong_settings import FILE as FILE
from pulsar_lakehouse.wrong_settings import PREFIX as PREFIX
from pulsar_lakehouse.wrong_settings import first_problem, line_in_file, not_json, unknown_variable

DECLARATIONS = "declarations"
SHIPPED = Path(__file__).resolve().parent / "domains" / "shop" / DECLARATIONS
"""The declarations that come with this package: a shop."""
SECRETS = (("pulsar", "token"), ("postgres", "url"), ("serve", "users"), ("airflow", "alert_url"))
"""Settings that are allowed in the environment only, and whose values are never shown."""
SECRET_PROPERTY = re.compile(
    r"secret|password|token$|access[._]?key|(account|private|encryption)\.key|\.sas\.", re.IGNORECASE
)
"""Matches the names of Spark properties that are secrets."""
HOSTS = re.compile(r"([a-z+]+)://[^,/\s]+(?:,[^,/\s]*[^,/\s:])*(?:/[^,\s]*)?")
"""Matches a URL of one host or several, and its scheme."""


def _folder(path: Path) -> Path:
    folder = path.expanduser().absolute()
    with suppress(OSError):  # a folder without permission is reported by the command that needs it
        if folder.exists() and not folder.is_dir():
            raise ValueError("must be a folder")
    return folder


def _root(root: str) -> str:
    if is_remote(_path(root)) and not re.match(r"s3a://[^/]+", root):
        raise ValueError("must be a folder, file:///path or s3a://bucket/path")
    return root


def _declarations(path: Path) -> Path:
    if not _folder(path).is_dir():
        raise ValueError("must be a folder with declarations")
    return _folder(path).resolve()


def _own_or_shipped() -> Path:
    own = Path(DECLARATIONS).resolve()
    return own if own.is_dir() else SHIPPED


def _beside(given: dict[str, Any]) -> Path:
    """The home of a project is beside its declarations, so two projects have two homes, wherever commands are run."""
    folder: Path = given.get("declarations", SHIPPED)
    project = Path.cwd() if folder == SHIPPED else folder.parent
    return project / (".lakehouse" if folder.name == DECLARATIONS else f".lakehouse-{folder.name}")


def _url(*schemes: str) -> AfterValidator:
    """Checks the URL of a cluster, which can name several hosts."""

    def check(url: str) -> str:
        found = HOSTS.fullmatch(url)
        if found is None or found[1] not in schemes:
            raise ValueError(f"must be {schemes[0]}://host:port, or {schemes[0]}://host:port,host:port for several")
        return url

    return AfterValidator(check)


def _like(pattern: str, right: str) -> AfterValidator:
    """Checks a text. `right` says what it must be."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"must be {right}")
        return text

    return AfterValidator(check)


def _token(token: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", token.get_secret_value(), re.ASCII):
        raise ValueError("must be a JSON web token: three parts with a dot between, and no space or end of line")
    return token


def _certificates(path: Path) -> Path:
    try:
        ssl.create_default_context(cafile=path)
    except OSError:
        raise ValueError("must be a file of certificates, in PEM") from None
    return path


def _check_pair(certificate: Path, key: Path) -> None:
    try:
        ssl.create_default_context().load_cert_chain(certificate, key, password="")  # which asks nobody for one
    except OSError:
        needed = "tls_certificate and tls_key must be PEM files of a certificate and its key, without a passphrase"
        raise ValueError(f"{needed} (given: {certificate}, {key})") from None


def _file(path: Path) -> Path:
    return path.expanduser().absolute()


def _private_key(path: Path) -> Path:
    from cryptography.exceptions import UnsupportedAlgorithm  # late, because few projects need it
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path = path.expanduser().absolute()
    try:
        load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("must be a PEM file of a private key, without a password") from None
    return path


Folder = Annotated[Path, AfterValidator(_folder)]
File = Annotated[Path, AfterValidator(_file)]
Port = Annotated[int, Field(ge=0, le=65535)]
UserName = Annotated[str, _like(r"\S+", "a name without spaces")]
Memory = Annotated[str, _like(r"\d+[mg]", "a whole number with m or g after it, such as 3g")]
Password = Annotated[SecretStr, Field(min_length=8)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pulsar(Section):
    service_url: Annotated[str, _url("pulsar", "pulsar+ssl")] | None = None
    """Your own cluster, such as `pulsar://host:6650`, or `pulsar://one:6650,other:6650` to name several brokers. Unset:
    the embedded broker that `lakehouse up` starts."""
    admin_url: Annotated[str, _url("http", "https")] | None = None
    """Its admin API, `http://host:8080` or `http://one:8080,other:8080`. Set both URLs or neither."""
    namespace: Annotated[str, _like("[^/]+/[^/]+", "tenant/namespace, such as public/lakehouse")] = "public/lakehouse"
    """Where the topics are: tenant and namespace."""
    partitions: int = Field(2, ge=1)
    """Partitions of topics that `lakehouse topics create` creates."""
    listener_name: str | None = None
    """The advertised listener whose addresses the brokers tell us. Unset: that of the service URL."""
    token: Annotated[SecretStr, AfterValidator(_token)] | None = None
    """A JSON web token that is sent to the cluster."""
    token_file: File | None = None
    """A file with such a token, in place of `token`. It is read again each time that a token is sent, so it can be
    renewed."""
    oauth2_issuer_url: Annotated[str, _like(r"https?://[^/\s]+\S*", "https://host, or http://host")] | None = None
    """An OAuth2 issuer, which grants tokens for client credentials, in place of `token`."""
    oauth2_key_file: File | None = None
    """The JSON file with `client_id` and `client_secret`, as Pulsar's own clients take it."""
    oauth2_audience: str | None = None
    """The audience of the tokens, if the issuer wants to know it."""
    oauth2_scope: str | None = None
    """Their scope, if it wants to know that."""
    tls_certificate: File | None = None
    """A PEM file with our own certificate, for mutual TLS. It is our role, too, unless a token is sent."""
    tls_key: File | None = None
    """A PEM file with the certificate's key, without a passphrase."""
    tls_trust_certs: Annotated[Path, AfterValidator(_certificates)] | None = None
    """A PEM file of CA certificates. Unset: those of the system."""
    tls_validate_hostname: bool = True
    """Whether the certificate must name the host of the service URL."""
    decryption_keys: dict[str, Annotated[Path, AfterValidator(_private_key)]] = {}
    """PEM files of private keys, by the names under which producers encrypt messages for them. Messages of other keys
    land encrypted."""
    broker_port: Port = 0
    """Port of the embedded broker; 0 means a free one."""
    web_port: Port = 0
    """The port of the embedded broker's admin API; 0 takes a free one."""
    memory: Memory = "1g"
    """Heap of the embedded broker, and the limit of its direct memory."""

    @model_validator(mode="after")
    def _urls_come_together(self) -> Self:
        if (self.service_url is None) != (self.admin_url is None):
            raise ValueError("service_url and admin_url come together: set both, or neither for the embedded broker")
        return self

    @model_validator(mode="after")
    def _credentials_go_together(self) -> Self:
        if sum(each is not None for each in (self.token, self.token_file, self.oauth2_issuer_url)) > 1:
            raise ValueError("set one of token, token_file and oauth2_issuer_url")
        if (self.oauth2_issuer_url is None) != (self.oauth2_key_file is None):
            raise ValueError("oauth2_issuer_url and oauth2_key_file come together: set both, or neither")
        if self.oauth2_issuer_url is None and (self.oauth2_audience or self.oauth2_scope):
            raise ValueError("oauth2_audience and oauth2_scope are for oauth2_issuer_url, which is not set")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key come together: set both, or neither")
        if self.tls_certificate and self.tls_key:
            _check_pair(self.tls_certificate, self.tls_key)
            if self.service_url and not (
                self.service_url.startswith("pulsar+ssl:") and str(self.admin_url).startswith("https:")
            ):
                raise ValueError(
                    "tls_certificate needs a service_url with pulsar+ssl:// and an admin_url with https://"
                )
        return self


class Spark(Section):
    master: str = "local[*]"
    """Spark's master: `local[*]` or `spark://host:7077`."""
    memory: Memory = "3g"
    """Heap of the driver. In local mode, the driver is all of Spark."""
    conf: dict[str, str] = {}
    """More Spark properties, passed on unchanged."""


class Engine(Section):
    idle_minutes: float = Field(30.0, ge=0)
    """After so long without a command, the engine's Spark ends; the next one starts another. 0: there is no engine, and
    each command starts its own."""


class Run(Section):
    retries: int = Field(5, ge=0)
    """Retries of a stream after transient failures, before the command fails."""
    retry_delay: float = Field(10.0, ge=0)
    """Seconds before the next try. They double each time while the machine is too busy to start Spark's processes."""
    broker_timeout: float = Field(60.0, gt=0)
    """Seconds to wait at the start until the broker answers."""
    max_bytes_per_batch: int = Field(512 * 2**20, ge=2**20)
    """Stored bytes that one batch reads of a topic, or of its bronze table. Limits memory, and the work that a crash
    loses."""
    only_new: bool = False
    """Whether a step that finds nothing new ends with exit code 99, without Spark. Each Airflow task sets it, unless
    somebody asked for the step."""
    outcome_file: Path | None = None
    """A file to which a command appends what it did and what its tables hold, as lines of JSON. Each Airflow task sets
    it."""


class Metrics(Section):
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port at which `lakehouse run --every` and `lakehouse metrics --serve` serve metrics. Unset: the former serves
    none."""
    host: str = "127.0.0.1"
    """The address at which they are served. There is no password, so let only Prometheus reach it."""


class Airflow(Section):
    port: Port = 0
    """Port of the local Airflow's web page; 0 means a free one."""
    parallelism: int = Field(2, ge=1)
    """Tasks that the local Airflow runs at once. All but one of them start a Spark of their own."""
    alert_url: SecretStr | None = None
    """A webhook URL. A failed Airflow task, local or not, sends it a POST with `{"text": ...}`, the format of Slack."""


class S3(Section):
    endpoint: Annotated[str, _like("https?://[^/]+/?", "http://host:port or https://host:port")] | None = None
    """A server other than Amazon's, such as `http://minio:9000`. `http` is not encrypted."""
    region: str | None = None
    """The region of the buckets. Unset: the region that the environment or the profile of AWS gives."""
    path_style: bool = False
    """Whether the bucket is in the path of URLs, and not in their host. Most servers other than Amazon's need it."""


class Postgres(Section):
    url: SecretStr | None = None
    """`postgresql://user:password@host/database`, to which gold tables that declare it are published, and with
    which `lakehouse compare` compares tables. The password can be in `PGPASSWORD` or `~/.pgpass` instead."""


class Serve(Section):
    host: str = "127.0.0.1"
    """The address at which the SQL endpoint listens. One that other machines can reach needs a certificate."""
    port: Port = 0
    """0 means a free one at the first start, which later starts reuse if it is still free."""
    users: dict[UserName, Password] = {}
    """Passwords, by user name."""
    grants: dict[UserName, tuple[str, ...]] = {}
    """What each user may read: layers such as `gold`, tables such as `silver.users`, `*` for all tables, and `pii` for
    personal data, which is masked otherwise. Unset: all users may read all tables."""
    tls_certificate: Path | None = None
    """A PEM file with the certificate and its intermediate certificates. If set, clients must use TLS."""
    tls_key: Path | None = None
    """A PEM file with the certificate's key, without a passphrase."""
    sessions_per_user: int = Field(20, ge=1)
    """Sessions that a user may have open at once. A client opens one for each connection, or for each cursor."""
    max_queries: int = Field(4, ge=1)
    """Queries that run at once. Others wait; their waiting time counts towards `query_timeout`."""
    query_timeout: int = Field(600, ge=1)
    """Seconds after which a query is cancelled."""
    max_result: Memory = "64m"
    """Uncompressed size that a query may collect in one place: its result, or a table that it broadcasts for a join."""

    @model_validator(mode="after")
    def _files_come_together(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key come together: set both, or neither")
        return self


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,  # a script may pass on a variable that is not set
        extra="forbid",
        frozen=True,
        toml_file=FILE,
    )

    declarations: Annotated[Path, AfterValidator(_declarations)] = Field(default_factory=_own_or_shipped)
    """The folder with the project's declarations. Unset: `declarations` in the working directory, or else the shop that
    comes with this package."""
    home: Folder = Field(default_factory=_beside)
    """Tables, checkpoints, logs and the embedded broker's data. Unset: `.lakehouse` beside the declarations or, for the
    shop that comes with this package, in the working directory. If the folder of declarations has another name, then
    `.lakehouse-<its name>`."""
    warehouse: Annotated[str, AfterValidator(_root)] = ""
    """Root of all tables: a folder, `file:///path`, or `s3a://bucket/path`. Unset: `<home>/warehouse`."""
    checkpoints: Annotated[str, AfterValidator(_root)] = ""
    """Root of the streams' checkpoints. Unset: `<home>/checkpoints` or, for tables in an object store, `.checkpoints`
    in their root."""
    parameters: dict[str, dict[str, Annotated[str, BeforeValidator(str)]]] = {}
    """Values of SQL tables' parameters in place of the declared ones, by table and parameter: literals in SQL, such as
    `LAKEHOUSE_PARAMETERS__REVENUE_BY_SESSION__GAP="'45 minutes'"`."""
    unmasked: bool = False
    """Whether commands and the page show personal data, which is masked otherwise. Each that does is in the log of
    `lakehouse audit`."""
    cache: Folder = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "pulsar-lakehouse"
    """Downloads and compiled jars, shared by all clones."""
    pulsar: Pulsar = Pulsar()
    spark: Spark = Spark()
    engine: Engine = Engine()
    run: Run = Run()
    metrics: Metrics = Metrics()
    s3: S3 = S3()
    airflow: Airflow = Airflow()
    postgres: Postgres = Postgres()
    serve: Serve = Serve()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, EnvSettingsSource(settings_cls), TomlConfigSettingsSource(settings_cls)

    @property
    def warehouse_root(self) -> str:
        return _path(self.warehouse) or str(self.home / "warehouse")

    @property
    def report(self) -> Path:
        """The first page of the quality report."""
        return self.home / "quality" / "index.html"

    @property
    def checkpoint_root(self) -> str:
        beside = f"{self.warehouse_root}/.checkpoints" if is_remote(self.warehouse_root) else self.home / "checkpoints"
        return _path(self.checkpoints) or str(beside)

    def table_path(self, name: str) -> str:
        """The path or URI of the table `layer.name`."""
        return f"{self.warehouse_root}/{name.replace('.', '/')}"

    def checkpoint_path(self, name: str) -> str:
        return f"{self.checkpoint_root}/{name}"


def is_remote(path: str) -> bool:
    """Whether a path is a URI in an object store, and not a folder of this machine."""
    return "://" in path


def _path(root: str) -> str:
    """The path of a folder on this machine, given as a path or a `file:` URI; other URIs stay as they are."""
    return re.sub("^file:(//)?", "", root).rstrip("/")


def load_settings(**overrides: Any) -> Settings:
    """Read and check all settings.

    Raises ConfigurationError, whose message is one line, for the first setting that is unknown or bad.
    """
    if unknown := unknown_variable(Settings):
        raise ConfigurationError(unknown)
    try:
        _refuse_secrets(tomllib.loads(FILE.read_text()) if FILE.exists() else {})
        return Settings(**overrides)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{FILE}: can't be read: {error}") from error
    except SettingsError as error:
        name = re.sub('.*field "([^"]+)".*', r"\1", str(error))
        raise ConfigurationError(not_json(name, Settings, error.__cause__)) from error
    except tomllib.TOMLDecodeError as error:
        reason, _, line = str(error).partition(" (at line ")
        at = f":{line.partition(',')[0]}" if line else ""
        raise ConfigurationError(f"{FILE}{at}: not TOML: {reason}") from error
    except ValidationError as error:
        raise ConfigurationError(first_problem(error, Settings, SECRETS, overrides)) from error


def _refuse_secrets(in_file: dict[str, Any]) -> None:
    for section, name in SECRETS:
        if isinstance(in_file.get(section), dict) and name in in_file[section]:
            variable = f"{PREFIX}{section}__{name}".upper()
            at = f"{FILE}:{line_in_file((section, name))}"
            raise ConfigurationError(f"{at}: {section}.{name} is a secret: set {variable} instead")
    spark = in_file.get("spark")
    conf = spark.get("conf") if isinstance(spark, dict) else None
    for name in conf if isinstance(conf, dict) else ():
        if SECRET_PROPERTY.search(name):
            at = f"{FILE}:{line_in_file(('spark', 'conf', name))}"
            raise ConfigurationError(f"{at}: spark.conf {name} is a secret: set {PREFIX}SPARK__CONF instead")


def variables() -> dict[str, str]:
    """The environment variables that are settings, including secrets, but not `LAKEHOUSE_HOME`."""
    return {
        name: value for name, value in os.environ.items() if name.upper().startswith(PREFIX) and name != f"{PREFIX}HOME"
    }


def environment_of_others() -> dict[str, str]:
    """The environment without our settings, for programs that don't need them: it exposes none of our secrets."""
    ours = variables()
    return {name: value for name, value in os.environ.items() if name not in ours}
