"""Agent frameworks with ctxproxy's HTTP client or a wrapped SDK client; each is skipped where it is not installed."""
