"""The client of Daytona, as test_provider_sdks.py has others; apart because it is large."""
# slow: copies and checks 110 MB of node_modules

import test_provider_sdks as sdks
from plugintest import from_npm, npm_install

DAYTONA = "@daytonaio/sdk@0.173.0"


class DaytonaTest(sdks.SdksTest):
    """Its client asks whether a sandbox is there before it starts or deletes it: what was lost gets neither call."""
    providers = (("daytona", ("POST /sandbox", "POST /sandbox/ID/start", "POST /sandbox/ID/stop", "DELETE /sandbox/ID")),)

    def modules(self):
        # Without the peers, which may be newer than what a mirror has; ws is one of them.
        fetched = from_npm(DAYTONA, "the client of Daytona",
                           lambda cache, package: npm_install(cache, package, "ws", "--legacy-peer-deps"))
        return [*super().modules(), fetched]

    def expect(self, acquire, resume, pause, destroy):
        return {acquire: 2, resume: 2, pause: 4, destroy: 1}


class DaytonaMiddleSdkTest(DaytonaTest, sdks.MiddleSdkTest):
    pass


class DaytonaNewSdkTest(DaytonaTest, sdks.NewSdkTest):
    pass
