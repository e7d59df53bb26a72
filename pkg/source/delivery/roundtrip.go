package delivery

import "time"

// How long a confirmation may take, in round trips, and at most, in republishAfter.
const (
	patienceRoundTrips = 3
	maxPatienceFactor  = 10
)

// roundTrip is the mean time from a publish to its confirmation, of works that were published once. A broker, or
// a source, that is behind makes it long: works that are published again then would only make it longer.
// The zero value is one that nothing is known of.
type roundTrip time.Duration

// with returns r after one more round trip. The last 64 count most.
func (r roundTrip) with(took time.Duration) roundTrip { return r + (roundTrip(max(took, 0))-r)/64 }

// patience returns how long a confirmation may take: least, or longer if round trips do.
func (r roundTrip) patience(least time.Duration) time.Duration {
	return min(max(patienceRoundTrips*time.Duration(r), least), maxPatienceFactor*least)
}
