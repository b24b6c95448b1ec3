"""Code that tests share. pytest rewrites the assertions of the case table to show values."""

import pytest

pytest.register_assert_rewrite("tests.support.contract_rows")
