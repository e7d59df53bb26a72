package fleet

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/ctl/cli"
)

// statusTone colours the status of a condition.
func statusTone(status string) cli.Cell {
	cell := cli.Cell{Text: status}
	switch status {
	case string(metav1.ConditionTrue):
		cell.Tone = cli.Good
	case string(metav1.ConditionFalse):
		cell.Tone = cli.Bad
	case string(metav1.ConditionUnknown):
		cell.Tone = cli.Warn
	}
	return cell
}

// WorkTable returns a table of works. wide adds the columns since, cause and message.
func WorkTable(lines []WorkLine, now time.Time, wide bool) *cli.Rows {
	t := &cli.Rows{Header: []string{"NAMESPACE", "NAME", "DELIVERED", "APPLIED", "READY", "OBSERVED", "AGE", "CAUSE"}}
	if wide {
		t.Header = append(t.Header, "SINCE", "OBJECT", "MESSAGE")
	}
	for i := range lines {
		l := &lines[i]
		row := []any{l.Cluster, l.Name, statusTone(l.Delivered), statusTone(l.Applied), readyTone(l), ratio(l.Observed, l.Generation),
			Age(now, &l.Created), cause(l)}
		if wide {
			since := ""
			if l.Cause != "" {
				since = Age(now, &l.Since)
			}
			row = append(row, since, l.Object, l.Message)
		}
		t.Add(row...)
	}
	return t
}

// notWatched is the cell of readiness that nobody watches.
var notWatched = cli.Cell{Text: "not watched", Tone: cli.Warn}

// readyTone is the cell of readiness.
func readyTone(l *WorkLine) cli.Cell {
	if l.Ready == "" {
		return notWatched
	}
	return statusTone(l.Ready)
}

func cause(l *WorkLine) cli.Cell {
	tone := cli.Bad
	if !l.state.Blocked() {
		tone = cli.Warn
	}
	return cli.Cell{Text: string(l.Cause), Tone: tone}
}

// ClusterTable returns a table of clusters. wide adds the reason.
func ClusterTable(lines []ClusterLine, now time.Time, wide bool) *cli.Rows {
	t := &cli.Rows{Header: []string{"NAME", "ACCEPTED", "CONNECTED", "LAST SEEN", "WORKS", "PENDING", "FAILING", "PAUSED", "AGE"}}
	if wide {
		t.Header = append(t.Header, "MESSAGE")
	}
	for i := range lines {
		l := &lines[i]
		counted := []string{strconv.Itoa(l.Works), strconv.Itoa(l.Pending), strconv.Itoa(l.Failing)}
		if l.unread {
			counted = []string{"-", "-", "-"}
		}
		row := []any{l.Name, strconv.FormatBool(l.Accepted), statusTone(l.Connected), lastSeen(l, now), counted[0], counted[1], counted[2],
			strconv.FormatBool(l.Paused), Age(now, &l.Created)}
		if wide {
			row = append(row, l.Reason)
		}
		t.Add(row...)
	}
	return t
}

// lastSeen is how long a cluster has not been heard from. The time that a connected one was is written rarely, and says nothing, unless the hub
// is away and nobody writes either.
func lastSeen(l *ClusterLine, now time.Time) string {
	if l.Connected == string(metav1.ConditionTrue) && !l.hubAway {
		return "-"
	}
	return Age(now, l.LastSeen)
}

// SetTable returns a table of sets. wide adds the message.
func SetTable(lines []SetLine, now time.Time, wide bool) *cli.Rows {
	t := &cli.Rows{Header: []string{"NAMESPACE", "NAME", "ROLLED OUT", "TOTAL", "WANTED", "APPLIED", "AVAILABLE", "PROGRESSING", "DEGRADED", "PAUSED", "AGE"}}
	if wide {
		t.Header = append(t.Header, "MESSAGE")
	}
	for i := range lines {
		l := &lines[i]
		row := []any{l.Namespace, l.Name, statusTone(l.RolledOut), strconv.Itoa(l.Total), strconv.Itoa(l.Wanted), strconv.Itoa(l.Applied), strconv.Itoa(l.Available),
			strconv.Itoa(l.Progressing), strconv.Itoa(l.Degraded), strconv.FormatBool(l.Paused), Age(now, &l.Created)}
		if wide {
			row = append(row, l.Message)
		}
		t.Add(row...)
	}
	return t
}

// Write writes the summary as text. Lines are cut to width characters if it is not 0.
func (sum *Summary) Write(w io.Writer, style cli.Style, width int) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s  %s\n", style.Paint(cli.Bold, "HUB     "), style.Paint(hubTone(sum.Hub.State), sum.Hub.text(sum.Time)))
	fmt.Fprintf(&out, "%s  %s\n", style.Paint(cli.Bold, "CLUSTERS"), sum.Clusters.text(style))
	fmt.Fprintf(&out, "%s  %s", style.Paint(cli.Bold, "WORKS   "), sum.Works.text(style))
	if p := sum.Works.OldestPending; p != nil {
		fmt.Fprintf(&out, "; oldest pending: %s/%s, %s", p.Cluster, p.Name, Age(sum.Time, &p.Since))
	}
	fmt.Fprintf(&out, "\n%s  %s\n", style.Paint(cli.Bold, "SETS    "), sum.Sets.text(style))
	if _, err := io.WriteString(w, out.String()); err != nil {
		return err
	}
	return sum.writeProblems(w, style, width)
}

// Line returns the summary on one line: the counts, and the worst problem.
func (sum *Summary) Line() string {
	plain := cli.Style{}
	text := fmt.Sprintf("hub %s; clusters %s; works %s; sets %s", sum.Hub.State, sum.Clusters.text(plain), sum.Works.text(plain), sum.Sets.text(plain))
	if len(sum.WorkProblems) > 0 {
		w := &sum.WorkProblems[0]
		text += fmt.Sprintf("; %s/%s: %s, %s: %s", w.Cluster, w.Name, w.Cause, w.Object, w.Message)
	}
	return cli.OneLine(text)
}

func (sum *Summary) writeProblems(w io.Writer, style cli.Style, width int) error {
	if len(sum.ClusterProblems)+len(sum.WorkProblems)+len(sum.SetProblems) == 0 {
		text := "\nNothing needs attention."
		if sum.Hub.State == "away" {
			text = "\nNothing needed attention when the hub was last seen."
		}
		_, err := fmt.Fprintln(w, text)
		return err
	}
	for _, part := range []struct {
		title, all string
		table      *cli.Rows
		more       int
	}{
		{"Clusters that need attention", "workctl get clusters", ClusterTable(sum.ClusterProblems, sum.Time, true), sum.More.Clusters},
		{"Works that need attention", "workctl get works -A --blocked", problemTable(sum.WorkProblems, sum.Time), sum.More.Works},
		{"Sets that are not rolled out", "workctl get sets -A", SetTable(sum.SetProblems, sum.Time, true), sum.More.Sets},
	} {
		if len(part.table.Rows) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s\n", style.Paint(cli.Bold, part.title)); err != nil {
			return err
		}
		if err := part.table.Write(w, style, width); err != nil {
			return err
		}
		if part.more > 0 {
			if _, err := fmt.Fprintf(w, "… and %d more: %s\n", part.more, part.all); err != nil {
				return err
			}
		}
	}
	return nil
}

// problemTable has the cause where WorkTable has the age.
func problemTable(lines []WorkLine, now time.Time) *cli.Rows {
	t := &cli.Rows{Header: []string{"CLUSTER", "WORK", "DELIVERED", "APPLIED", "READY", "SINCE", "CAUSE", "OBJECT", "MESSAGE"}}
	for i := range lines {
		l := &lines[i]
		t.Add(l.Cluster, l.Name, statusTone(l.Delivered), statusTone(l.Applied), readyTone(l), Age(now, &l.Since), cause(l), l.Object, l.Message)
	}
	return t
}

func (n *ClusterCounts) text(style cli.Style) string {
	if !n.Known {
		return "not known"
	}
	return fmt.Sprintf("%d: %s%s", n.Total, counts(style, counted{"connected", n.Connected, cli.Good}, counted{"away", n.Away, cli.Bad},
		counted{"not accepted", n.NotAccepted, cli.Warn}), ofAll(style, counted{"paused", n.Paused, cli.Warn}))
}

func (n *WorkCounts) text(style cli.Style) string {
	return fmt.Sprintf("%d: %s%s", n.Total, counts(style, counted{"ready", n.Ready, cli.Good}, counted{"with readiness not watched", n.NotWatched, cli.Warn},
		counted{"waiting", n.Waiting, cli.Warn}, counted{"staged", n.Staged, cli.Warn}, counted{"pending", n.Pending, cli.Warn}, counted{"failing", n.Failing, cli.Bad}),
		ofAll(style, counted{"delivered", n.Delivered, cli.Plain}, counted{"applied", n.Applied, cli.Plain}, counted{"with warnings", n.Warned, cli.Warn},
			counted{"degraded", n.Degraded, cli.Bad}, counted{"deleting", n.Deleting, cli.Warn}))
}

func (n *SetCounts) text(style cli.Style) string {
	return fmt.Sprintf("%d: %s%s", n.Total, counts(style, counted{"rolled out", n.RolledOut, cli.Plain}), ofAll(style, counted{"paused", n.Paused, cli.Warn}))
}

type counted struct {
	name string
	n    int
	tone cli.Tone
}

// counts returns such as "0 connected, 3 away": the first count, and of the others those that are not 0.
func counts(style cli.Style, all ...counted) string {
	var texts []string
	for i, c := range all {
		if i == 0 || c.n > 0 {
			texts = append(texts, style.Paint(c.tone, fmt.Sprintf("%d %s", c.n, c.name)))
		}
	}
	return strings.Join(texts, ", ")
}

// ofAll returns counts of what is counted before, such as " (of all 1 paused)"; empty if all are 0.
func ofAll(style cli.Style, all ...counted) string {
	all = slices.DeleteFunc(all, func(c counted) bool { return c.n == 0 })
	if len(all) == 0 {
		return ""
	}
	return " (of all " + counts(style, all...) + ")"
}

func hubTone(state string) cli.Tone {
	switch state {
	case "connected":
		return cli.Good
	case "away":
		return cli.Bad
	}
	return cli.Warn
}

func (h Hub) text(now time.Time) string {
	switch h.State {
	case "connected":
		return "connected to the broker"
	case "away":
		return fmt.Sprintf("away since %s: everything below is as it was then", Age(now, h.Seen))
	}
	return "not known: no Lease " + clusterv1.HubPresenceLeaseName + " can be read"
}
