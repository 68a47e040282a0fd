"""Run the command line as ``python -m tosakit``."""

from tosakit.cli import main

raise SystemExit(main())
