"""A project's declarations: found in its folder, checked, and put together."""
