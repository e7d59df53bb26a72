package agentbench

import (
	"fmt"

	"github.com/workwire/workwire/test/bench/report"
)

// Names of the rows.
const (
	creates       = "create works"
	updates       = "update works"
	deletes       = "delete works"
	normalised    = "create works, per plain create"
	requests      = "API requests per created work"
	statuses      = "status events per created work"
	broker        = "messages through the broker alone"
	memorySmall   = "agent memory"
	latencyP50    = "one work, p50"
	latencyP99    = "one work, p99"
	largeWork     = "large work"
	again         = "subscribed after broker restart"
	againLong     = "subscribed after a longer absence"
	resyncAsked   = "resync with nothing changed: requests"
	resyncMoved   = "resync with nothing changed: works"
	scaleCreate   = "scale: create"
	scaleRestart  = "scale: resync after agent restart"
	scaleStatuses = "scale: status resync"
	memoryScale   = "agent memory per further work"
	steadyAsked   = "steady state: API requests"
	steadyCPU     = "steady state: CPU"
	healDeleted   = "foreign delete healed, p95"
	healChanged   = "foreign change healed, p95"
	fedBack       = "feedback change, p95"
	uplinkValue   = "link: one changed value of a large work"
	uplinkShare   = "link: the same, of its status"
	uplinkEdit    = "link: one edited manifest of a large work"
	uplinkWhole   = "link: the same, sent whole"
	uplinkRollout = "link: a rollout to a work"
	uplinkIdle    = "link: an idle day"
	uplinkMetered = "link: an idle day, metered"
	binarySize    = "agent file"
	startEmpty    = "agent start with no work"
	memoryFew     = "agent memory at 100 works"
	readyMemory   = "readiness: agent memory"
	readyRequests = "readiness: API requests per created work"
	readyStatuses = "readiness: status events per created work"
	readyBytes    = "readiness: bytes of statuses per created work"
)

var (
	throughputRows = []string{creates, updates, deletes, normalised, requests, statuses, broker, memorySmall}
	latencyRows    = []string{latencyP50, latencyP99}
	largeRows      = []string{largeWork}
	reconnectRows  = []string{again, againLong, resyncAsked, resyncMoved}
	uplinkRows     = []string{uplinkValue, uplinkShare, uplinkEdit, uplinkWhole, uplinkRollout, uplinkIdle}
	smallRows      = []string{uplinkMetered, binarySize, startEmpty, memoryFew}
	readinessRows  = []string{readyMemory, readyRequests, readyStatuses, readyBytes}
	scaleRows      = []string{scaleCreate, scaleRestart, scaleStatuses, memoryScale, steadyAsked, steadyCPU, healDeleted, healChanged, fedBack}
)

// Rows are the rows about agents, in the order of the table.
func Rows(o Options) []*report.Row {
	least, most := func(x float64) *float64 { return &x }, func(x float64) *float64 { return &x }
	factor := float64(o.Scale) / float64(o.Works)
	share := func(name string, of float64) *report.Row {
		return &report.Row{Name: name, Target: fmt.Sprintf("≥ %v of the API server alone", of), Unit: "works/s", Ratio: true, Least: least(of)}
	}
	linear := func(name string) *report.Row {
		return &report.Row{Name: name, Target: fmt.Sprintf("≤ %.3g× the time for %g× the works", 1.1*factor, factor), Unit: "×", Most: most(1.1 * factor)}
	}
	watched := func(name, unit string, times float64) *report.Row {
		return &report.Row{Name: name, Target: fmt.Sprintf("≤ %v × unwatched", times), Unit: unit, Ratio: true, Most: most(times)}
	}
	return []*report.Row{
		share(creates, 0.9), share(updates, 0.6), share(deletes, 0.6),
		{Name: normalised, Target: "≥ 260/1950 = 0.133", Unit: "", Ratio: true, Least: least(260.0 / 1950)},
		{Name: requests, Target: fmt.Sprintf("≤ M + 2 = %d", objects+2), Unit: "", Most: most(objects + 2)},
		{Name: statuses, Target: "1", Unit: "", Most: most(1)},
		{Name: broker, Unit: "messages/s"},
		{Name: latencyP50, Target: "≤ 8 ms", Unit: "ms", Most: most(8)},
		{Name: latencyP99, Target: "≤ 50 ms", Unit: "ms", Most: most(50)},
		{Name: largeWork, Target: "≥ 1 of small works' objects/s", Unit: "objects/s", Ratio: true, Least: least(1)},
		{Name: again, Target: "≤ 1000 ms", Unit: "ms", Most: most(1000)},
		{Name: againLong, Target: "≤ 1000 ms", Unit: "ms", Most: most(1000)},
		{Name: resyncAsked, Target: "1", Unit: "", Most: most(1)},
		{Name: resyncMoved, Target: "0", Unit: "", Most: most(0)},
		{Name: memorySmall, Target: fmt.Sprintf("≤ 45 MB at %d works", o.Works), Unit: "MB", Most: most(45)},
		{Name: memoryScale, Target: "≤ 6 KB", Unit: "KB", Most: most(6)},
		linear(scaleCreate), linear(scaleRestart), linear(scaleStatuses),
		{Name: steadyAsked, Target: "0 but watches", Unit: "", Most: most(0)},
		{Name: steadyCPU, Target: "≤ 1 % of a core", Unit: "%", Most: most(1)},
		{Name: healDeleted, Target: "< 1000 ms", Unit: "ms", Most: most(1000)},
		{Name: healChanged, Target: "< 1000 ms", Unit: "ms", Most: most(1000)},
		{Name: fedBack, Target: "< 300 ms", Unit: "ms", Most: most(300)},
		{Name: uplinkValue, Target: "≤ 4200, a small status of OCM", Unit: "bytes", Most: most(4200)},
		{Name: uplinkShare, Target: "≤ 1 %", Unit: "%", Most: most(1)},
		{Name: uplinkEdit, Target: "≤ 5 % of the spec", Unit: "%", Most: most(5)},
		{Name: uplinkWhole, Unit: "%"},
		{Name: uplinkRollout, Target: "≤ 4200, a status of OCM alone", Unit: "bytes", Most: most(4200)},
		{Name: uplinkIdle, Unit: "KB"},
		{Name: uplinkMetered, Target: "≤ 200 KB", Unit: "KB", Most: most(200)},
		{Name: binarySize, Target: "≤ 40 MB", Unit: "MB", Most: most(40)},
		{Name: startEmpty, Target: "≤ 1 s", Unit: "s", Most: most(1)},
		{Name: memoryFew, Target: "≤ 25 MB", Unit: "MB", Most: most(25)},
		watched(readyMemory, "MB", 1.2), watched(readyRequests, "", 1.1), watched(readyStatuses, "", 3), watched(readyBytes, "bytes", 5),
	}
}
