"""The contracts, row by row."""

import pytest

pytest.register_assert_rewrite("tests.support.contract_rows")
