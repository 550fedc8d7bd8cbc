"""A page that shows the state of the pipeline, and lets people act on what is held back."""
