"""The clients: wrapped and drop-in SDK clients and HTTP clients, against the strict provider.

The SDKs that are installed are the ones that are tested. In a second environment with the older generation:

    pip install -e . pytest pytest-asyncio hypothesis 'openai>=2,<3' 'anthropic>=0.100,<1'
    python -m pytest tests/clients
"""
