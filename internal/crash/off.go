//go:build !crashpoints

package crash

// Enabled says that this build has crash points.
const Enabled = false

// Here does nothing in a release build.
func Here(operation, exec string, position Position) {}

// Fail does nothing in a release build.
func Fail(operation, exec string, position Position) error { return nil }

// Scope does nothing in a release build.
func Scope(group string) {}
