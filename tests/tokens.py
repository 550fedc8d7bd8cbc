"""JSON web tokens, and brokers that want them."""

import base64
import hashlib
import hmac
import json
import math
import time

KEY = b"the key of the tests, which is long enough"


def token(role: str, key: bytes = KEY, *, seconds: float | None = None) -> str:
    """A JSON web token like those of `pulsar tokens create`, which expires in some seconds if they are given."""

    def encode(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    claims = {"sub": role} if seconds is None else {"sub": role, "exp": math.ceil(time.time() + seconds)}
    text = f"{encode(json.dumps({'alg': 'HS256'}).encode())}.{encode(json.dumps(claims).encode())}"
    return f"{text}.{encode(hmac.digest(key, text.encode(), hashlib.sha256))}"


PROVIDERS = "org.apache.pulsar.broker.authentication"
AUTHENTICATION = f"""
authenticationEnabled=true
authorizationEnabled=true
authenticationProviders={PROVIDERS}.AuthenticationProviderToken,{PROVIDERS}.AuthenticationProviderTls
tokenSecretKey=data:;base64,{base64.b64encode(KEY).decode()}
superUserRoles=owner
brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
brokerClientAuthenticationParameters=token:{token("owner")}
"""
"""The configuration of a broker that wants a token or a certificate, and knows one role, `owner`."""
