"""ticdc_lab: from a TiCDC change log to a proved answer."""

from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.load import ChangeLog, load
from ticdc_lab.session import local_session

__all__ = ["ChangeLog", "TiCDCLabError", "load", "local_session"]
