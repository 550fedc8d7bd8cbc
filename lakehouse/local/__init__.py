"""What runs on this machine: the embedded broker, other servers, and what is downloaded for them."""
