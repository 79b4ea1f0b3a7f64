"""The routes of the app, built on import.

Processes that are forked afterwards share them: they have no state.
"""

from mochi_server.app import create_app
from mochi_server.config import MochiServerSettings
from mochi_server.testing import share_routes

app = create_app(MochiServerSettings.model_construct())
share_routes(app)
routes = app.router.routes
while routes:
    routes = [each for route in routes for each in getattr(route, "effective_candidates", list)()]
