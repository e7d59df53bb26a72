package brokerbench

import (
	"fmt"
	"maps"
	"slices"

	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/kit/mqttflood"
)

// Names of the rows.
const (
	atRest  = "broker: memory per connection"
	trips   = "broker: round trips"
	first   = "broker: first connection after a restart"
	back    = "broker: connections back after a restart"
	logins  = "broker: logins with random passwords"
	bcrypts = "broker: logins with chosen passwords"
	traffic = "broker: memory after round trips"
	flood   = "broker: p99 of others, flood of " // and the kind
)

// Rows are the rows about the broker, in the order of the table.
func Rows(o Options) []*report.Row {
	most := func(x float64) *float64 { return &x }
	one := 1.0
	rows := []*report.Row{
		{Name: atRest, Target: fmt.Sprintf("≤ 25 KB, %d connections", o.Clients), Unit: "KB", Most: most(25)},
		{Name: trips, Target: "≥ Mosquitto's", Unit: "round trips/s", Ratio: true, Least: &one},
		{Name: traffic, Target: fmt.Sprintf("with %d clients", o.Clusters+1), Unit: "MB"},
		{Name: first, Target: fmt.Sprintf("≤ 2 s, %d sessions", o.Back), Unit: "s", Most: most(2)},
		{Name: back, Target: fmt.Sprintf("≤ 60 s, %d connections", o.Back), Unit: "s", Most: most(60)},
		{Name: logins, Target: fmt.Sprintf("≤ 30 s, %d logins", o.Logins), Unit: "s", Most: most(30)},
		{Name: bcrypts, Target: fmt.Sprintf("%d logins", o.Logins), Unit: "s"},
	}
	for _, kind := range slices.Sorted(maps.Keys(mqttflood.Kinds)) {
		rows = append(rows, &report.Row{Name: flood + kind, Target: "< 3 times that without", Unit: "ms", Ratio: true, Most: most(3)})
	}
	return rows
}
