"""The application that every HTTP service starts from, without routes."""

from fastapi import FastAPI

from penstock.version import __version__


def empty_app() -> FastAPI:
    """Without FastAPI's own pages, which load from other servers; ours is `http.openapi_page`."""
    return FastAPI(
        title="Penstock",
        version=__version__,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
