package sim

import (
	_ "embed"
	"html/template"
	"io"
	"slices"
	"strings"
)

//go:embed lanes.html
var lanesPage string

// page is what the template needs.
type page struct {
	Title string
	Lanes []string
	Works []string
	Steps []step
	Wrong []string // the first wrong state, and what led to it
}

// writeLanes writes a page that shows steps in lanes, with an arrow for each message and each write. It needs nothing else.
func writeLanes(out io.Writer, title string, steps []step) error {
	t, err := template.New("lanes").Parse(lanesPage)
	if err != nil {
		return err
	}
	p := page{Title: title, Steps: steps, Lanes: lanesOf(steps), Wrong: firstWrong(steps)}
	for i := range steps {
		p.Works = append(p.Works, steps[i].Works...)
	}
	slices.Sort(p.Works)
	p.Works = slices.Compact(p.Works)
	return t.Execute(out, p)
}

// lanesOf returns the lanes of steps in the order in which works pass them.
func lanesOf(steps []step) []string {
	lanes := []string{faults, people, apiLane + "hub", "hub", brokerLane}
	var agents, sources []string
	for i := range steps {
		for _, lane := range []string{steps[i].From, steps[i].To} {
			if cluster, isAgent := strings.CutPrefix(lane, agentLane); isAgent && !slices.Contains(agents, cluster) {
				agents = append(agents, cluster)
			}
			if strings.HasSuffix(lane, sourceProgram) || strings.HasPrefix(lane, "source ") {
				sources = append(sources, lane)
			}
		}
	}
	slices.Sort(sources)
	lanes = append(lanes, slices.Compact(sources)...)
	slices.Sort(agents)
	for _, cluster := range agents {
		lanes = append(lanes, agentLane+cluster, apiLane+cluster)
	}
	return lanes
}
