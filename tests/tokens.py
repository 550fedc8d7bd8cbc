"""JSON web tokens, and brokers that want them."""

import base64
import hashlib
import hmac
import json

KEY = b"the key of the tests, which is long enough"


def token(role: str, key: bytes = KEY) -> str:
    """A JSON web token like those of `pulsar tokens create`."""

    def encode(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    text = f"{encode(json.dumps({'alg': 'HS256'}).encode())}.{encode(json.dumps({'sub': role}).encode())}"
    return f"{text}.{encode(hmac.digest(key, text.encode(), hashlib.sha256))}"


AUTHENTICATION = f"""
authenticationEnabled=true
authorizationEnabled=true
authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken
tokenSecretKey=data:;base64,{base64.b64encode(KEY).decode()}
superUserRoles=owner
brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
brokerClientAuthenticationParameters=token:{token("owner")}
"""
"""The configuration of a broker that wants a token and knows one role, `owner`."""
