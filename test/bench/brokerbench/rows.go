package brokerbench

import (
	"fmt"

	"github.com/workwire/workwire/test/bench/report"
)

// Names of the rows.
const (
	atRest  = "broker: memory per connection"
	trips   = "broker: round trips"
	back    = "broker: connections back after a restart"
	logins  = "broker: logins with passwords"
	traffic = "broker: memory after round trips"
)

// Rows are the rows about the broker, in the order of the table.
func Rows(o Options) []*report.Row {
	most := func(x float64) *float64 { return &x }
	one := 1.0
	return []*report.Row{
		{Name: atRest, Target: fmt.Sprintf("≤ 40 KB, %d connections", o.Clients), Unit: "KB", Most: most(40)},
		{Name: trips, Target: "≥ Mosquitto's", Unit: "round trips/s", Ratio: true, Least: &one},
		{Name: traffic, Target: fmt.Sprintf("with %d clients", o.Clusters+1), Unit: "MB"},
		{Name: back, Target: fmt.Sprintf("≤ 60 s, %d connections", o.Back), Unit: "s", Most: most(60)},
		{Name: logins, Target: fmt.Sprintf("≤ 30 s, %d logins", o.Logins), Unit: "s", Most: most(30)},
	}
}
