"""What the service says about itself: the OpenAPI document, and pages for people."""
