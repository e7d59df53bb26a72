package wholerows

// OnlyExpiring is for tests that import kine, which this package itself must not.
var OnlyExpiring = onlyExpiring
