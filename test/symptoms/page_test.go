package symptoms

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// symptom is a heading of the page.
type symptom struct {
	heading string
	// produce brings it about. Without it, the tests do, each "package Test"; what the heading quotes is in
	// the test files of one of their packages.
	produce func(*patient)
	tests   []string
	// last is produced after all others: it takes away what they need.
	last bool
}

var symptoms = []symptom{
	{heading: "Empty columns", produce: (*patient).emptyColumns},
	{heading: "The agent runs, and its cluster is away", produce: (*patient).anotherSource},
	{heading: "Applied but not running", produce: (*patient).notRunning},
	{heading: "Applied is True, and the change is not there", produce: (*patient).changeIsNotThere},
	{heading: "`Applied` is False with reason `Flapping`", tests: []string{"pkg/agent TestFlappingNamesBoth"}},
	{heading: "Paused and forgotten", produce: (*patient).paused},
	{heading: "The work is too large", produce: (*patient).tooLarge},
	{heading: "Connected, no status", produce: (*patient).noStatus},
	{heading: "A cluster is `Unknown`", produce: (*patient).unknown, last: true},
	{heading: "A work does not go away", produce: (*patient).doesNotGoAway},
	{heading: "A rollout stands still", tests: []string{"test/rollout TestCanary", "pkg/hub/internal/replicaset TestPause"}},
	{heading: "Removals are held back", tests: []string{"pkg/hub/internal/replicaset TestRemovalsAreHeld"}},
	{heading: "Condition `Applied` is False", produce: (*patient).forbidden},
	{heading: "`NoUnsealKey`, `NoSealKey`", tests: []string{"test/integration TestSealingKeys"}},
	{heading: "A certificate has expired", tests: []string{"pkg/ctl/doctor TestTLS"}},
	{heading: "Clocks differ", tests: []string{"pkg/ctl/doctor TestBroker"}},
	{heading: "`state cannot be written, retrying`", tests: []string{"pkg/agent/internal/store TestCommitIsRetried"}},
	{heading: "`damaged file set aside, starting with an empty one`", tests: []string{"pkg/runtime/statestore TestDamagedFileIsSetAside"}},
	{heading: "`connect failed, retrying`", produce: (*patient).connectFailed},
	{heading: "`subscribe failed, retrying`", produce: (*patient).subscribeFailed},
	{heading: "`resync failed; specs sent while the agent was away may be missing`", produce: (*patient).resyncFailed},
	{
		heading: "`works differ from those of their source, requesting them`, `works of the cluster differ from those of the source`",
		tests:   []string{"test/faults TestLostWithoutReconnect", "pkg/source/delivery TestOnDivergence"},
	},
	{heading: "`reconcile failed, retrying`, `applying a manifest failed, retrying`", produce: (*patient).reconcileFailed},
	{heading: "`watch failed, retrying`", produce: (*patient).watchFailed},
	{heading: "`spec refused`", produce: (*patient).specRefused},
	{heading: "`event refused because of its signature`, condition `SpecUntrusted`", produce: (*patient).untrusted},
	{heading: "`another program publishes under this source id`", tests: []string{"pkg/hub TestTwoHubsUnderOneSourceID", "pkg/source TestTwoProgramsUnderOneSourceID"}},
	{heading: "`other programs under this source id cannot be noticed`", tests: []string{"pkg/source/instances TestWithoutTheRight"}},
	{heading: "`session taken over`", produce: (*patient).takenOver},
	{heading: "`cache is not known to be current, reading it anew`", tests: []string{"pkg/hub TestCatchUpWaits"}},
	{heading: "A standby hub is not ready", tests: []string{"pkg/hub TestStandbyOnlyReads"}},
	{heading: "A work has condition `DeletionHeld`", tests: []string{"pkg/agent TestSourceThatLostItsMemory"}},
	{heading: "A ManagedCluster has condition `WorksHeld`", tests: []string{"pkg/hub/internal/clusters TestHeldWorks"}},
	{heading: "A ManagedCluster has condition `Noisy`", produce: (*patient).noisy},
	{heading: "A ManagedCluster has condition `WorksInSync` False", tests: []string{"pkg/hub/internal/clusters TestDivergence"}},
}

const root = "../../"

var (
	sectionHeading = regexp.MustCompile(`(?m)^## (.+)$`)
	quotation      = regexp.MustCompile("`([^`]+)`")
	testFunction   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// sections returns the text below each heading of the page.
func sections(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(root + "docs/troubleshooting.md")
	kit.NoError(t, err)
	page := string(data)
	found := map[string]string{}
	at := sectionHeading.FindAllStringSubmatchIndex(page, -1)
	for i, m := range at {
		end := len(page)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		found[page[m[2]:m[3]]] = page[m[0]:end]
	}
	return found
}

// TestPage: every heading of the page is produced by a test, and every symptom has a heading.
func TestPage(t *testing.T) {
	page := sections(t)
	for _, s := range symptoms {
		if _, ok := page[s.heading]; !ok {
			t.Errorf("docs/troubleshooting.md has no heading %q", s.heading)
		}
		delete(page, s.heading)
		if (s.produce == nil) == (len(s.tests) == 0) {
			t.Errorf("%q needs a function or tests", s.heading)
		}
		if len(s.tests) > 0 {
			checkTests(t, s)
		}
	}
	for heading := range page {
		t.Errorf("nothing produces the symptom %q of docs/troubleshooting.md: add it to the table", heading)
	}
}

// checkTests: the tests exist, and quote what the heading quotes.
func checkTests(t *testing.T, s symptom) {
	t.Helper()
	var texts strings.Builder
	for _, name := range s.tests {
		folder, test, _ := strings.Cut(name, " ")
		files, err := filepath.Glob(root + folder + "/*_test.go")
		kit.NoError(t, err)
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			kit.NoError(t, err)
			texts.Write(text)
			found = found || slices.ContainsFunc(testFunction.FindAllStringSubmatch(string(text), -1), func(m []string) bool { return m[1] == test })
		}
		if !found {
			t.Errorf("%q: there is no %s in %s", s.heading, test, folder)
		}
	}
	for _, m := range quotation.FindAllStringSubmatch(s.heading, -1) {
		if !strings.Contains(texts.String(), m[1]) {
			t.Errorf("%q: no test file of %q quotes %q", s.heading, s.tests, m[1])
		}
	}
}

// TestSymptoms produces the symptoms of the page.
func TestSymptoms(t *testing.T) {
	page := sections(t)
	w, hub := open(t)
	produce := func(t *testing.T, i int) {
		s := symptoms[i]
		p := &patient{World: w.On(t), hub: hub, section: page[s.heading], i: i, cluster: string(w.Clusters[i]), target: w.Targets[i]}
		p.BrokerHost = p.cluster
		s.produce(p)
	}
	t.Run("together", func(t *testing.T) {
		for i, s := range symptoms {
			if s.produce != nil && !s.last {
				t.Run(s.heading, func(t *testing.T) { t.Parallel(); produce(t, i) })
			}
		}
	})
	for i, s := range symptoms {
		if s.last {
			t.Run(s.heading, func(t *testing.T) { produce(t, i) })
		}
	}
}
