import pytest

from pulsar_lakehouse.bronze.pulsar.options import Options, PulsarSourceError

REQUIRED = {"serviceUrl": "pulsar://broker:6650", "adminUrl": "http://broker:8080/", "topic": "events"}


def test_defaults() -> None:
    assert Options.parse(REQUIRED) == Options(
        service_url="pulsar://broker:6650",
        admin_url="http://broker:8080",
        topics=("persistent://public/default/events",),
        subscription=None,
        starting_position="earliest",
        max_bytes_per_trigger=None,
        max_messages_per_trigger=None,
        min_partitions=1,
        fail_on_data_loss=True,
        read_timeout=120.0,
        token=None,
        tls_trust_certs=None,
        tls_validate_hostname=True,
    )


def test_all_options_in_any_case() -> None:
    given = {
        "SERVICEURL": "pulsar+ssl://broker:6651",
        "adminurl": "https://broker:8443",
        "Topic": "acme/shop/orders, persistent://acme/shop/users",
        "subscription": "spark",
        "startingPosition": '{"persistent://acme/shop/orders-partition-0": "12:34"}',
        "maxMessagesPerTrigger": "1000",
        "minPartitions": "8",
        "failOnDataLoss": "False",
        "readTimeout": "1.5",
        "listenerName": "external",
        "token": "a.secret.token",
        "tlsCertificate": "/etc/own.pem",
        "tlsKey": "/etc/own-key.pem",
        "tlsTrustCerts": "/etc/ca.pem",
        "tlsValidateHostname": "false",
    }
    assert Options.parse(given) == Options(
        service_url="pulsar+ssl://broker:6651",
        admin_url="https://broker:8443",
        topics=("persistent://acme/shop/orders", "persistent://acme/shop/users"),
        subscription="spark",
        starting_position='{"persistent://acme/shop/orders-partition-0": "12:34"}',
        max_messages_per_trigger=1000,
        min_partitions=8,
        fail_on_data_loss=False,
        read_timeout=1.5,
        listener_name="external",
        token="a.secret.token",
        tls_certificate="/etc/own.pem",
        tls_key="/etc/own-key.pem",
        tls_trust_certs="/etc/ca.pem",
        tls_validate_hostname=False,
    )


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(Options.parse(REQUIRED | {"token": "a.secret.token"}))


@pytest.mark.parametrize("token", ["secret", "a.secret.token\n", "a.secret"])
def test_a_token_that_can_not_be_one_is_not_shown(token: str) -> None:
    with pytest.raises(PulsarSourceError) as error:
        Options.parse(REQUIRED | {"token": token})
    assert str(error.value) == (
        "option token: must be a JSON web token: three parts with a dot between, and no space or end of line"
    )


@pytest.mark.parametrize("name", ["serviceUrl", "adminUrl", "topic"])
def test_a_missing_option_is_named(name: str) -> None:
    with pytest.raises(PulsarSourceError, match=f"^option {name} is required$"):
        Options.parse({other: value for other, value in REQUIRED.items() if other != name})


def test_an_unknown_option_is_named_with_those_there_are() -> None:
    with pytest.raises(PulsarSourceError, match=r"^unknown option topics; the options are adminUrl, decryptionKeys.+$"):
        Options.parse(REQUIRED | {"topics": "events"})


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("topic", " , ", "must name a topic"),
        ("topic", "shop/orders", "must be topic, tenant/namespace/topic or persistent://tenant/namespace/topic"),
        ("topic", "non-persistent://acme/shop/orders", "only persistent topics can be read by position"),
        ("startingPosition", "first", "must be earliest, latest, epoch milliseconds or offsets as JSON"),
        ("startingPosition", '{"events": "one"}', "must be earliest, latest, epoch milliseconds or offsets as JSON"),
        ("startingPosition", "[1]", "must be earliest, latest, epoch milliseconds or offsets as JSON"),
        ("maxBytesPerTrigger", "0", "must be a whole number, 1 or more"),
        ("maxMessagesPerTrigger", "many", "must be a whole number, 1 or more"),
        ("minPartitions", "-1", "must be a whole number, 1 or more"),
        ("failOnDataLoss", "no", "must be true or false"),
        ("readTimeout", "nan", "must be a number of seconds above 0"),
        ("readTimeout", "soon", "must be a number of seconds above 0"),
        ("tlsValidateHostname", "", "must be true or false"),
    ],
)
def test_a_bad_value_is_named_with_what_would_be_right(name: str, value: str, reason: str) -> None:
    with pytest.raises(PulsarSourceError) as error:
        Options.parse(REQUIRED | {name: value})
    assert str(error.value) == f"option {name}={value!r}: {reason}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"token": "a.b.c", "tokenFile": "/run/token"}, "set one of token, tokenFile and oauth2IssuerUrl"),
        (
            {"oauth2IssuerUrl": "https://sso"},
            "oauth2IssuerUrl and oauth2KeyFile come together: set both, or neither",
        ),
        ({"tlsKey": "/etc/own-key.pem"}, "tlsCertificate and tlsKey come together: set both, or neither"),
    ],
)
def test_credentials_go_together(given: dict[str, str], told: str) -> None:
    with pytest.raises(PulsarSourceError, match=f"^{told}$"):
        Options.parse(REQUIRED | given)


def test_a_cluster_as_options_of_the_source() -> None:
    reach = {"serviceUrl": "pulsar://broker:6650", "adminUrl": "http://broker:8080", "tlsValidateHostname": "true"}
    oauth2 = {
        "oauth2IssuerUrl": "https://sso",
        "oauth2KeyFile": "/run/key.json",
        "oauth2Audience": "pulsar",
        "oauth2Scope": "read",
    }
    assert Options.parse(REQUIRED | oauth2).options() == reach | oauth2


def test_two_limits_are_refused() -> None:
    with pytest.raises(PulsarSourceError, match=r"^set maxBytesPerTrigger or maxMessagesPerTrigger, not both$"):
        Options.parse(REQUIRED | {"maxBytesPerTrigger": "1", "maxMessagesPerTrigger": "1"})
