package testenv

// fataler is a testing.TB, or the T of another package of tests.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

// Must ends a test that cannot continue after err.
func Must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ErrorOf returns the error of a call with two results.
func ErrorOf[T any](_ T, err error) error { return err }
