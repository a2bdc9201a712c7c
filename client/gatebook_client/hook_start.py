"""Start `gatebook hook` without the packages of the environment, as `gatebook connect` writes it.

`python -I -S hook_start.py claude-code` reads nothing from the folder that the agent works in, and
no file of an environment but the modules of this package that the hook needs.
"""

import sys

package = type(sys)("gatebook_client")  # a stand-in for the package, whose own module is not run
package.__path__ = [__file__.rpartition("/")[0]]
sys.modules["gatebook_client"] = package

from gatebook_client.hook_command import main  # noqa: E402

raise SystemExit(main(sys.argv[1:]))
