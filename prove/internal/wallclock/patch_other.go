//go:build !(linux && amd64)

package wallclock

import "errors"

func patch(int32) error { return errors.ErrUnsupported }

func patchOther(int, int32) error { return errors.ErrUnsupported }
