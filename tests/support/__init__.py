"""What the tests share. Assertions of the case table are rewritten, so that they show values."""

import pytest

pytest.register_assert_rewrite("tests.support.contract_rows")
