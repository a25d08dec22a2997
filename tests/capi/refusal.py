"""What tests of the C interface expect of a call that fails."""

from moetune.capi import Failed


class RefusalTests:
    """Beside unittest.TestCase."""

    def assert_fails(self, status, part, call, *arguments, **named):
        with self.assertRaises(Failed) as caught:
            call(*arguments, **named)
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertIn(part, caught.exception.message)
