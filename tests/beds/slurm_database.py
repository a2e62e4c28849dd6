"""The MariaDB behind a bed's slurmdbd, from a data directory that is made once per user."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from beds.slurm_files import ROOT

if TYPE_CHECKING:
    from beds.slurm import SlurmBed


def database_folder(bed: "SlurmBed") -> Path:
    """Return a fresh data directory in the bed, copied from the one in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimtab"
    if ROOT:
        cache = Path(ROOT) / "var/cache/trimtab"
    template = cache / "mariadb-for-slurm-tests"
    if not (template / "mysql").is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as making:
            made = Path(making) / "data"
            inside = f"/{made.relative_to(ROOT or '/')}"
            # The account of --auth-root-socket-user is the almighty one: no password, no root.
            bed.run(
                "mariadb-install-db", "--no-defaults", f"--datadir={inside}", "--skip-test-db",
                "--auth-root-authentication-method=socket",
                f"--auth-root-socket-user={bed.plan.user}", f"--user={bed.plan.user}",
            )  # fmt: skip
            if not template.exists():
                made.rename(template)
    folder = bed.folder / "db"
    shutil.copytree(template, folder)
    return folder


def start_database(bed: "SlurmBed", folder: Path) -> None:
    """Start MariaDB on its socket, with the empty database that slurmdbd fills."""
    at_socket = f"--socket={bed.environment['MYSQL_UNIX_PORT']}"
    bed.spawn(
        "mariadbd", "mariadbd", "--no-defaults", f"--datadir={folder}", at_socket,
        f"--pid-file={bed.folder}/run/mariadbd.pid", f"--user={bed.plan.user}",
        f"--log-error={bed.folder}/log/mariadbd.log", "--skip-networking",
        "--plugin-load-add=auth_socket", "--innodb-buffer-pool-size=64M",
        "--innodb-log-file-size=32M", "--innodb-lock-wait-timeout=900",
        "--innodb-flush-log-at-trx-commit=0", "--performance-schema=OFF",
    )  # fmt: skip
    asking = ["mariadb-admin", "--no-defaults", at_socket, "ping"]
    bed.until("mariadbd", lambda: "alive" in bed.run(*asking, check=False))
    create = "CREATE DATABASE slurm_acct_db"
    bed.run("mariadb", "--no-defaults", "-u", bed.plan.user, at_socket, "-e", create)
