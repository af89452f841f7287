"""The families as scikit-learn estimators: `CollapsedLDA`, `CollapsedHDP`, `VariationalLDA`, `GibbsLDA`, `GibbsHDP`.

They require scikit-learn 1.6 or newer, which the extra ``sklearn`` installs. No other package imports this one.
"""

from __future__ import annotations

from collapsium.pipeline.monitoring.progress import shown
from collapsium.storage.errors import MissingError

# These imports take two seconds and more.
with shown("importing the estimators"):
    try:
        from sklearn.utils.validation import validate_data as _  # noqa: F401 - new in 1.6
    except ImportError as error:
        raise MissingError(
            "the estimators need scikit-learn 1.6 or newer, which is not installed: pip install 'collapsium[sklearn]'"
        ) from error

    from collapsium.pipeline.estimators.estimators import (
        CollapsedHDP,
        CollapsedLDA,
        GibbsHDP,
        GibbsLDA,
        VariationalLDA,
    )

__all__ = ["CollapsedHDP", "CollapsedLDA", "GibbsHDP", "GibbsLDA", "VariationalLDA"]
