// Package about reads what a cluster says of itself: version, capacity and claims.
package about
