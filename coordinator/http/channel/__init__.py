"""The service's side of channels (`GET /v1/channel`): WebSockets that carry the calls of many members."""
