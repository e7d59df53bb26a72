package rollout_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
)

var now = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

func config(minSuccess time.Duration, deadline string, maxFailures string) clusterv1alpha1.RolloutConfig {
	return clusterv1alpha1.RolloutConfig{
		MinSuccessTime: metav1.Duration{Duration: minSuccess}, ProgressDeadline: deadline,
		MaxFailures: intstr.Parse(maxFailures),
	}
}

func named(names ...string) clusterv1alpha1.MandatoryDecisionGroups {
	var groups clusterv1alpha1.MandatoryDecisionGroups
	for _, name := range names {
		groups.MandatoryDecisionGroups = append(groups.MandatoryDecisionGroups,
			clusterv1alpha1.MandatoryDecisionGroup{GroupName: name})
	}
	return groups
}

func progressive(concurrency string, config clusterv1alpha1.RolloutConfig, mandatory ...string) clusterv1alpha1.RolloutStrategy {
	return clusterv1alpha1.RolloutStrategy{
		RolloutType: clusterv1alpha1.Progressive,
		Progressive: &clusterv1alpha1.RolloutProgressive{
			RolloutConfig: config, MandatoryDecisionGroups: named(mandatory...), MaxConcurrency: intstr.Parse(concurrency),
		},
	}
}

func perGroup(config clusterv1alpha1.RolloutConfig, mandatory ...string) clusterv1alpha1.RolloutStrategy {
	return clusterv1alpha1.RolloutStrategy{
		Type: clusterv1alpha1.ProgressivePerGroup,
		ProgressivePerGroup: &clusterv1alpha1.RolloutProgressivePerGroup{
			RolloutConfig: config, MandatoryDecisionGroups: named(mandatory...),
		},
	}
}

// groupsFrom parses "west: a b | east: c d | e f": groups by index, with or without a name.
func groupsFrom(text string) []rollout.Group {
	var groups []rollout.Group
	for i, part := range strings.Split(text, "|") {
		name, clusters, found := strings.Cut(part, ":")
		if !found {
			name, clusters = "", part
		}
		groups = append(groups, rollout.Group{Index: i, Name: strings.TrimSpace(name), Clusters: strings.Fields(clusters)})
	}
	return groups
}

// clustersFrom parses "a=S3m b=P~5m c=F2m^1m d=~": the status (P, S, F, T for TimeOut, K for Skip,
// none for ToApply) and its age, then ~ and how long the cluster has been away, or ^ and how long
// it has been back.
func clustersFrom(t *testing.T, text string) map[string]rollout.Cluster {
	t.Helper()
	ago := func(text string) time.Time {
		if text == "" {
			return time.Time{}
		}
		duration, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		return now.Add(-duration)
	}
	statuses := map[byte]rollout.Status{
		'P': rollout.Progressing, 'S': rollout.Succeeded, 'F': rollout.Failed, 'T': rollout.TimeOut, 'K': rollout.Skip,
	}
	clusters := map[string]rollout.Cluster{}
	for _, field := range strings.Fields(text) {
		var cluster rollout.Cluster
		name, rest, _ := strings.Cut(field, "=")
		for _, mark := range []string{"~", "^"} {
			before, since, found := strings.Cut(rest, mark)
			if found {
				rest, cluster.Away, cluster.PresenceSince = before, mark == "~", ago(since)
			}
		}
		if rest != "" {
			cluster.Status, cluster.Since = statuses[rest[0]], ago(rest[1:])
			if cluster.Status == rollout.ToApply {
				t.Fatalf("no status in %q", field)
			}
		}
		clusters[name] = cluster
	}
	return clusters
}

func decide(t *testing.T, strategy clusterv1alpha1.RolloutStrategy, groups []rollout.Group, clusters map[string]rollout.Cluster) rollout.Decision {
	t.Helper()
	parsed, err := rollout.Parse(&strategy)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Decide(groups, clusters, now)
}

// format returns a decision as one line: Start, Waiting, and every other field that is not zero.
func format(decision rollout.Decision) string {
	text := fmt.Sprintf("start %v wait %v", decision.Start, decision.Waiting)
	for _, list := range []struct {
		name     string
		clusters []string
	}{{"failed", decision.Failed}, {"timed out", decision.TimedOut}, {"stopped by", decision.StoppedBy}} {
		if len(list.clusters) > 0 {
			text += fmt.Sprintf(" %s %v", list.name, list.clusters)
		}
	}
	if len(decision.Missing) > 0 {
		text += fmt.Sprintf(" missing %v", decision.Missing)
	}
	if decision.Done {
		text += " done"
	}
	if !decision.RequeueAt.IsZero() {
		text += " requeue " + decision.RequeueAt.Sub(now).String()
	}
	return text
}

func TestDecide(t *testing.T) {
	plain := config(0, "", "0")
	const eight = "a b | c d e | f g h"
	tests := map[string]struct {
		strategy clusterv1alpha1.RolloutStrategy
		groups   string
		clusters string
		want     string
	}{
		"all: at once":            {clusterv1alpha1.RolloutStrategy{}, eight, "", "start [a b c d e f g h] wait []"},
		"all: no clusters":        {clusterv1alpha1.RolloutStrategy{}, "", "", "start [] wait [] done"},
		"all: failures stop none": {clusterv1alpha1.RolloutStrategy{}, "a b c", "a=F b=T", "start [c] wait [] failed [a] timed out [b]"},
		"all: deadline": {
			clusterv1alpha1.RolloutStrategy{All: &clusterv1alpha1.RolloutAll{RolloutConfig: config(time.Hour, "10m", "0")}},
			"a b c d e f g", "a=P10m b=P9m c=F11m d=F1m e=S f=P20m~30m g=",
			"start [g] wait [] failed [d] timed out [a c] requeue 1m0s",
		},
		"all: None is no deadline": {
			clusterv1alpha1.RolloutStrategy{All: &clusterv1alpha1.RolloutAll{RolloutConfig: config(0, "None", "0")}},
			"a b", "a=P999h b=F999h", "start [] wait [] failed [b]",
		},
		"all: away":    {clusterv1alpha1.RolloutStrategy{}, "a b", "a=~5m b=P6m~5m", "start [a] wait []"},
		"all: skipped": {clusterv1alpha1.RolloutStrategy{}, "a b", "a=K b=S", "start [] wait [] done"},

		"places":                             {progressive("3", plain), eight, "", "start [a b c] wait [d e f g h]"},
		"places by name, not by group":       {progressive("2", plain), "z b | a y", "", "start [a b] wait [y z]"},
		"percent of places, rounded up":      {progressive("30%", plain), eight, "", "start [a b c] wait [d e f g h]"},
		"no number: all":                     {progressive("0", plain), eight, "", "start [a b c d e f g h] wait []"},
		"0%: all":                            {progressive("0%", plain), eight, "", "start [a b c d e f g h] wait []"},
		"number too large: all":              {progressive("9", plain), eight, "", "start [a b c d e f g h] wait []"},
		"progressing ones hold a place":      {progressive("3", plain), eight, "a=P b=S c=P", "start [d] wait [e f g h]"},
		"places are taken":                   {progressive("2", plain), "a b c", "a=P b=P", "start [] wait [c]"},
		"more on their way than places":      {progressive("1", plain), "a b c", "a=P b=P", "start [] wait [c]"},
		"failed ones hold a place":           {progressive("2", config(0, "", "1")), "a b c", "a=F", "start [b] wait [c] failed [a]"},
		"failed ones hold it until deadline": {progressive("1", config(0, "10m", "1")), "a b c", "a=F10m", "start [b] wait [c] timed out [a]"},
		"timed-out ones hold none":           {progressive("2", config(0, "10m", "1")), "a b c d", "a=P11m", "start [b c] wait [d] timed out [a]"},
		"given up elsewhere":                 {progressive("2", config(0, "", "1")), "a b c d", "a=T", "start [b c] wait [d] timed out [a]"},
		"deadline to come":                   {progressive("1", config(0, "10m", "1")), "a b", "a=P4m", "start [] wait [b] requeue 6m0s"},
		"success holds a place for a time":   {progressive("2", config(5*time.Minute, "", "0")), "a b c", "a=S3m b=S5m", "start [c] wait [] requeue 2m0s"},
		"and then frees it":                  {progressive("1", config(5*time.Minute, "", "0")), "a b", "a=S3m", "start [] wait [b] requeue 2m0s"},
		"nothing waits, proven in a while":   {progressive("1", config(5*time.Minute, "", "0")), "a", "a=S3m", "start [] wait [] done requeue 2m0s"},
		"skipped ones hold none":             {progressive("1", plain), "a b", "a=K", "start [b] wait []"},
		"done":                               {progressive("1", plain), "a b", "a=S b=S", "start [] wait [] done"},

		"first failure stops":           {progressive("3", plain), eight, "b=F", "start [] wait [a c d e f g h] failed [b] stopped by [b]"},
		"up to the limit":               {progressive("4", config(0, "", "2")), eight, "b=F c=F", "start [a d] wait [e f g h] failed [b c]"},
		"beyond the limit":              {progressive("4", config(0, "10m", "2")), eight, "b=F1m c=F2m d=P11m", "start [] wait [a e f g h] failed [b c] timed out [d] stopped by [b c d] requeue 8m0s"},
		"percent of failures":           {progressive("4", config(0, "", "10%")), eight, "b=F", "start [a c d] wait [e f g h] failed [b]"},
		"percent of failures, beyond":   {progressive("4", config(0, "", "10%")), eight, "b=F a=F", "start [] wait [c d e f g h] failed [a b] stopped by [a b]"},
		"percent of all, not the rest":  {progressive("9", config(0, "", "50%"), "w"), "w: a b c d | e f g", "a=S b=S c=S d=S e=F f=F", "start [g] wait [] failed [e f]"},
		"more failures allowed than is": {progressive("2", config(0, "", "99")), "a b c", "a=T b=T", "start [c] wait [] timed out [a b]"},
		"100% may fail":                 {progressive("2", config(0, "", "100%")), "a b c", "a=T b=T", "start [c] wait [] timed out [a b]"},
		"recovery goes on":              {progressive("2", plain), "a b c", "a=S b=P", "start [c] wait []"},
		"nothing left to stop":          {progressive("2", plain), "a b", "a=S b=F", "start [] wait [] failed [b]"},

		"mandatory: first":             {progressive("1", plain, "w", "e"), "x y | w: c d | e: a b", "", "start [c d] wait [a b x y]"},
		"mandatory: by index":          {progressive("1", plain, "e", "w"), "x y | w: c d | e: a b", "", "start [c d] wait [a b x y]"},
		"mandatory: the next":          {progressive("1", plain, "w", "e"), "x y | w: c d | e: a b", "c=S d=S", "start [a b] wait [x y]"},
		"mandatory: one on its way":    {progressive("1", plain, "w", "e"), "x y | w: c d | e: a b", "c=S d=P", "start [] wait [a b x y]"},
		"mandatory: then the rest":     {progressive("1", plain, "w", "e"), "x y | w: c d | e: a b", "a=S b=S c=S d=S", "start [x] wait [y]"},
		"mandatory: no failure":        {progressive("1", config(0, "", "100%"), "w"), "x | w: c d | e: a", "c=S d=F", "start [] wait [a x] failed [d] stopped by [d]"},
		"mandatory: no time-out":       {progressive("1", config(0, "1m", "100%"), "w"), "x | w: c d", "c=S d=P1m", "start [] wait [x] timed out [d] stopped by [d]"},
		"mandatory: fails later":       {progressive("1", config(0, "", "9"), "w"), "x y | w: c d", "c=S d=F x=S", "start [] wait [y] failed [d] stopped by [d]"},
		"mandatory: for a time":        {progressive("1", config(time.Minute, "", "0"), "w"), "x | w: c d", "c=S d=S20s", "start [] wait [x] requeue 40s"},
		"mandatory: new in the first":  {progressive("1", plain, "w"), "x y | w: c d", "c=S x=S", "start [d] wait [y]"},
		"mandatory: all of one name":   {progressive("1", plain, "w"), "x | w: c | w: d", "", "start [c] wait [d x]"},
		"mandatory: first cause named": {progressive("1", plain, "w"), "x y | w: c d", "c=S d=P x=F", "start [] wait [y] failed [x]"},
		"mandatory: not there":         {progressive("1", plain, "w", "q"), "x | w: c", "c=S", "start [] wait [x] missing [{q 0}]"},
		"mandatory: empty":             {progressive("1", plain, "w"), "x | w: ", "", "start [x] wait []"},
		"mandatory: skipped":           {progressive("1", plain, "w"), "x | w: a", "a=K", "start [x] wait []"},
		"mandatory: percent of others": {progressive("50%", plain, "w"), "a b c d | w: e f g h", "e=S f=S g=S h=S", "start [a b] wait [c d]"},

		"groups: by index":                 {perGroup(plain), eight, "", "start [a b] wait [c d e f g h]"},
		"groups: the next":                 {perGroup(plain), eight, "a=S b=S", "start [c d e] wait [f g h]"},
		"groups: one on its way":           {perGroup(plain), eight, "a=S b=P", "start [] wait [c d e f g h]"},
		"groups: timed out is not done":    {perGroup(config(0, "5m", "1")), eight, "a=T b=P1m", "start [] wait [c d e f g h] timed out [a] requeue 4m0s"},
		"groups: failed one tolerated":     {perGroup(config(0, "", "1")), eight, "a=S b=F", "start [c d e] wait [f g h] failed [b]"},
		"groups: failed one not tolerated": {perGroup(plain), eight, "a=S b=F", "start [] wait [c d e f g h] failed [b] stopped by [b]"},
		"groups: percent of the group":     {perGroup(config(0, "", "34%")), eight, "a=S b=S c=F d=F e=S", "start [f g h] wait [] failed [c d]"},
		"groups: percent, beyond":          {perGroup(config(0, "", "33%")), eight, "a=S b=S c=F d=F e=S", "start [] wait [f g h] failed [c d] stopped by [c d]"},
		"groups: too large a number":       {perGroup(config(0, "", "7")), eight, "a=F b=T", "start [c d e] wait [f g h] failed [a] timed out [b]"},
		"groups: each has its own limit":   {perGroup(config(0, "", "1")), eight, "a=S b=F c=F d=S e=S", "start [f g h] wait [] failed [b c]"},
		"groups: new one in the first":     {perGroup(plain), eight, "b=S c=P d=P e=P", "start [a] wait [f g h]"},
		"groups: new one where it failed":  {perGroup(plain), eight, "b=F", "start [] wait [a c d e f g h] failed [b] stopped by [b]"},
		"groups: mandatory first":          {perGroup(plain, "w"), "a | b | w: c", "", "start [c] wait [a b]"},
		"groups: mandatory tolerates none": {perGroup(config(0, "", "1"), "w"), "a | b | w: c d", "c=S d=F", "start [] wait [a b] failed [d] stopped by [d]"},
		"groups: for a time":               {perGroup(config(time.Minute, "", "0")), "a | b", "a=S15s", "start [] wait [b] requeue 45s"},
		"groups: skipped":                  {perGroup(plain), "a | b", "a=K", "start [b] wait []"},
		"groups: done":                     {perGroup(plain), "a | b", "a=S b=S", "start [] wait [] done"},

		"away: holds no place":              {progressive("2", plain), "a b c d e f", "a=~ b=~", "start [a b c d] wait [e f]"},
		"away: has a budget":                {progressive("2", plain), "a b c d e f", "a=~ b=~ c=~", "start [a b d e] wait [c f]"},
		"away: budget used":                 {progressive("2", plain), "a b c d e f", "a=P1m~1h b=P1m~1h c=~1h d=P e=P", "start [] wait [c f]"},
		"away: does not time out":           {progressive("1", config(0, "5m", "0")), "a b", "a=P10m~20m", "start [b] wait []"},
		"away: whole deadline when back":    {progressive("1", config(0, "5m", "0")), "a b", "a=P10m^1m", "start [] wait [b] requeue 4m0s"},
		"away: nothing when stopped":        {progressive("2", plain), "a b c", "a=F b=~", "start [] wait [b c] failed [a] stopped by [a]"},
		"away: failure stands":              {progressive("2", plain), "a b c", "a=F9m~5m", "start [] wait [b c] failed [a] stopped by [a]"},
		"away: success stands":              {progressive("1", plain), "a b", "a=S9m~5m", "start [b] wait []"},
		"away: not known since when":        {progressive("1", config(0, "5m", "0")), "a b", "a=P^20m", "start [] wait [b]"},
		"missing: excused":                  {progressive("2", plain), "a b c d e", "a=P9m~5m b=P9m~6m", "start [c d] wait [e]"},
		"missing: too many":                 {progressive("2", plain), "a b c d e", "a=P9m~5m b=P9m~6m c=P9m~7m", "start [d] wait [e]"},
		"missing: all too many":             {progressive("2", plain), "a b c d e", "a=P9m~5m b=P9m~6m c=P9m~7m d=P9m~7m", "start [] wait [e]"},
		"missing: last one times out":       {progressive("2", config(0, "9m", "1")), "a b c d e", "a=P9m~5m b=P9m~6m c=P9m~7m d=P", "start [e] wait [] timed out [a]"},
		"mandatory: away":                   {progressive("1", plain, "w"), "x | w: a b", "a=P1m~9m b=S", "start [x] wait []"},
		"mandatory: away and not begun":     {progressive("1", plain, "w"), "x | w: a b", "a=~9m b=S", "start [a x] wait []"},
		"mandatory: all away":               {progressive("1", plain, "w"), "x | w: a b", "a=P1m~9m b=P1m~9m", "start [] wait [x]"},
		"mandatory: missing":                {progressive("1", plain, "w"), "x | w: a b", "a=P9m~1m b=S", "start [] wait [x]"},
		"mandatory: missing times out":      {progressive("1", config(0, "5m", "9"), "w"), "x | w: a b", "a=P9m~1m b=S", "start [] wait [x] timed out [a] stopped by [a]"},
		"groups: away":                      {perGroup(plain), "a b | c d", "a=P1m~9m b=S", "start [c d] wait []"},
		"groups: all away":                  {perGroup(plain), "a b | c d", "a=P1m~9m b=P1m~9m", "start [c d] wait []"},
		"groups: crowd of away":             {perGroup(plain), "a b | c d | e f", "a=P1m~9m b=P1m~9m c=~ d=~ e=~", "start [f] wait [c d e]"},
		"groups: crowd of away after proof": {perGroup(plain), "a b | c d | e f", "a=P1m~9m b=S c=~ d=~ e=~", "start [c d e f] wait []"},
		"groups: missing":                   {perGroup(plain), "a b | c d", "a=P9m~1m b=S", "start [c d] wait []"},
		"groups: more missing than well":    {perGroup(plain), "a b | c d", "a=P9m~1m b=P9m~1m", "start [] wait [c d]"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			groups, clusters := groupsFrom(test.groups), clustersFrom(t, test.clusters)
			got := decide(t, test.strategy, groups, clusters)
			if format(got) != test.want {
				t.Errorf("%s | %s:\n got %s\nwant %s", test.groups, test.clusters, format(got), test.want)
			}
		})
	}
}

func TestRolloutListsClustersWithTheTemplate(t *testing.T) {
	got := decide(t, progressive("1", config(0, "", "9"), "w"), groupsFrom("e d c b a | w: z y"),
		clustersFrom(t, "z=S y=S a=P b=F c=T d=K"))
	if want := []string{"y", "z", "a", "b", "c"}; !slices.Equal(got.Rollout, want) {
		t.Errorf("rollout %v, want %v", got.Rollout, want)
	}
	if got := decide(t, progressive("1", config(0, "", "0")), groupsFrom("a b"), nil); !slices.Equal(got.Rollout, []string{"a"}) {
		t.Errorf("rollout %v, want a, which starts", got.Rollout)
	}
}

// What has succeeded holds up others, or nobody: then nobody need know of it.
func TestSoakingHoldsUpOthers(t *testing.T) {
	strategy := progressive("1", config(time.Hour, "", "0"))
	for clusters, want := range map[string]int{"a=S5m": 1, "a=S5m b=S5m": 0} {
		if got := decide(t, strategy, groupsFrom("a b"), clustersFrom(t, clusters)); len(got.Soaking) != want {
			t.Errorf("clusters %s: %v hold up others, want %d", clusters, got.Soaking, want)
		}
	}
}

func TestMandatoryByIndex(t *testing.T) {
	strategy := progressive("1", config(0, "", "0"))
	strategy.Progressive.MandatoryDecisionGroups.MandatoryDecisionGroups = []clusterv1alpha1.MandatoryDecisionGroup{
		{GroupIndex: 2}, {}, {GroupIndex: 7},
	}
	groups := groupsFrom("b: a | x | c")
	slices.Reverse(groups)
	got := format(decide(t, strategy, groups, nil))
	if want := "start [a] wait [c x] missing [{ 7}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// A group that is named is not also selected by its zero index.
	strategy.Progressive.MandatoryDecisionGroups = named("c")
	got = format(decide(t, strategy, groupsFrom("b: a | c: x"), nil))
	if want := "start [x] wait [a]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestClusterInSeveralGroups(t *testing.T) {
	got := format(decide(t, perGroup(config(0, "", "0")), groupsFrom("a b | b c c"), clustersFrom(t, "a=S b=S")))
	if want := "start [c] wait []"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDecideDoesNotModifyArguments(t *testing.T) {
	groups := []rollout.Group{{Index: 1, Clusters: []string{"d", "c"}}, {Index: 0, Name: "w", Clusters: []string{"b", "a"}}}
	clusters := clustersFrom(t, "a=S b=P~1m z=F")
	groupsBefore := []rollout.Group{{Index: 1, Clusters: []string{"d", "c"}}, {Index: 0, Name: "w", Clusters: []string{"b", "a"}}}
	clustersBefore := maps.Clone(clusters)
	decide(t, progressive("1", config(time.Minute, "1m", "1"), "w"), groups, clusters)
	if diff := cmp.Diff(groupsBefore, groups); diff != "" {
		t.Errorf("groups (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(clustersBefore, clusters); diff != "" {
		t.Errorf("clusters (-before +after):\n%s", diff)
	}
}
