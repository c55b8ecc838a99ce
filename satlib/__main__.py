"""`python -m satlib` is `satlib`."""

import sys

from satlib.cli import main

sys.exit(main())
