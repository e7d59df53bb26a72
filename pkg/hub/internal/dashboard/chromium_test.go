package dashboard

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	devtools "github.com/chromedp/cdproto/page"
	cdruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/test/kit"
)

var (
	screenshots = flag.String("screenshots", "", "directory to write screenshots of the pages to, such as docs/images")
	paintLimit  = flag.Duration("paint", 0, "how long the first paint of a page may take; default: it is only logged")
)

// tab is a tab of a headless Chromium.
type tab struct {
	*site
	do func(...chromedp.Action[chromedp.Void]) error

	mu       sync.Mutex
	faults   []string // guarded by mu: errors on the console
	requests []string // guarded by mu: URLs
}

// openTab starts Chromium. Without it the test is skipped, see [kit.Program].
func openTab(t *testing.T, s *site) *tab {
	t.Helper()
	path := kit.Chromium.Require(t)
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.Flag("headless", true), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 800), chromedp.WSURLReadTimeout(kit.Patience),
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	b := &tab{site: s}
	b.do = func(actions ...chromedp.Action[chromedp.Void]) error {
		done := make(chan error, 1)
		go func() { done <- chromedp.Do(ctx, actions...) }()
		return kit.Receive(b.t, "Chromium", done)
	}
	kit.NoError(t, chromedp.Listen(ctx, b.observe))
	b.run(command(log.Enable, cdp.Empty{}), command(network.Enable, network.EnableParams{}))
	return b
}

func (b *tab) observe(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && !strings.Contains(e.Entry.Text, "401") { // the login form
			b.faults = append(b.faults, e.Entry.Text+" "+e.Entry.URL)
		}
	case *cdruntime.EventExceptionThrown:
		b.faults = append(b.faults, e.ExceptionDetails.Text)
	}
}

// command is an action that sends a command of the protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// run runs actions within the patience of tests.
func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	kit.NoError(b.t, b.do(actions...))
}

func (b *tab) visit(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.url+path), chromedp.WaitReady("footer"))
}

// get returns what an action returns.
func get[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	value, err := try(b, action)
	kit.NoError(b.t, err)
	return value
}

// try returns what an action returns, or why it failed.
func try[T any](b *tab, action chromedp.Action[T]) (value T, err error) {
	err = b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) (err error) {
		value, err = action(ctx, t)
		return err
	}))
	return value, err
}

// script returns what an expression evaluates to.
func script[T any](b *tab, expression string) T {
	b.t.Helper()
	return get(b, chromedp.Evaluate[T](expression))
}

// await waits until an expression is true.
func (b *tab) await(what, expression string) {
	b.t.Helper()
	kit.Eventually(b.t, what, func() error {
		// An expression fails while one page replaces another.
		so, err := try(b, chromedp.Evaluate[bool](expression))
		if so || err != nil {
			return err
		}
		text, err := try(b, chromedp.Evaluate[string]("location.href + ' ' + document.body.innerText.slice(0, 2000)"))
		return errors.Join(errors.New(text), err)
	})
}

// login signs in with the form.
func (b *tab) login(path string) {
	b.t.Helper()
	b.visit(path)
	b.run(chromedp.SendKeys("#token", stubToken), chromedp.Submit("#token"))
	b.await("signed in", "document.querySelector('.viewer') !== null && document.readyState === 'complete'")
}

// finish checks what held on all pages.
func (b *tab) finish() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		b.t.Errorf("on the console: %s", fault)
	}
	for _, url := range b.requests {
		if !strings.HasPrefix(url, b.url+"/") {
			b.t.Errorf("a request to elsewhere: %s", url)
		}
		if strings.Contains(url, stubToken) {
			b.t.Errorf("a token in a URL: %s", url)
		}
	}
}

// exampleSets returns a replica set on its way and one that is done.
func exampleSets() []*workv1alpha1.ManifestWorkReplicaSet {
	var sets []*workv1alpha1.ManifestWorkReplicaSet
	for _, name := range []string{"ingress", "shop"} {
		set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name, Generation: 4, ResourceVersion: "5"}}
		set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{{Name: "all-prod", RolloutStrategy: clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.Progressive}}}
		set.Status.Summary = workv1alpha1.ManifestWorkReplicaSetSummary{Total: 500, Applied: 500, Available: 500}
		rolledOut := condition(workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut, yes, 0, workv1alpha1.ReasonComplete, "")
		ready := condition(workv1alpha1.ManifestWorkReplicaSetConditionReady, yes, 4, workv1alpha1.ReasonComplete, "500 of 500 clusters succeeded")
		if name == "shop" {
			set.Status.Summary = workv1alpha1.ManifestWorkReplicaSetSummary{Total: 120, Applied: 118, Available: 119, Progressing: 19, Degraded: 1}
			rolledOut = condition(workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut, no, 0, workv1alpha1.ReasonProgressing,
				"stopped at cluster-0034: Deployment shop/web: 0 of 3 pods are scheduled")
			ready = condition(workv1alpha1.ManifestWorkReplicaSetConditionReady, no, 4, workv1alpha1.ReasonStopped, rolledOut.Message)
		}
		set.Status.Conditions = []metav1.Condition{condition(workv1alpha1.ManifestWorkReplicaSetConditionPlacementVerified, yes, 0, workv1alpha1.ReasonAsExpected, ""), rolledOut,
			condition(workv1alpha1.ManifestWorkReplicaSetConditionProgressing, no, 4, workv1alpha1.ReasonComplete, ""), ready}
		set.Status.SelectedClusters = 500
		set.Status.PlacementsSummary = []workv1alpha1.PlacementSummary{{Name: "all-prod", AvailableDecisionGroups: fmt.Sprintf("5 (%d / 500 clusters applied)", set.Status.Summary.Total), Summary: set.Status.Summary}}
		sets = append(sets, set)
	}
	return sets
}

// TestChromium uses the pages as somebody with a browser does, of a fleet of 1,000 clusters with
// 10,000 works.
func TestChromium(t *testing.T) {
	t.Parallel()
	kit.Chromium.Require(t)
	works, clusters := exampleFleet(1000, 10)
	for i, work := range works[:5000] {
		if set := map[int]string{3: "apps.ingress", 7: "apps.shop"}[i%10]; set != "" {
			work.Labels[workv1.ReplicaSetLabelKey] = set
		}
	}
	works[7].Spec.Workload.Manifests = []workv1.Manifest{
		{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":3}}`)}},
		{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"web","namespace":"shop"},"stringData":{"password":"hunter"}}`)}},
	}
	stub := newStub(t, works, clusters, exampleSets())
	s := startSite(t, stub.serve(t))
	s.clock.set(epoch.Add(17 * 60e9))
	b := openTab(t, s)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.log)
		}
	})
	defer b.finish()

	// No access without a token.
	b.visit("/")
	if text := script[string](b, "document.body.innerText"); !strings.Contains(text, "Sign in") || strings.Contains(text, "cluster-") {
		t.Errorf("without a token: %s", text)
	}
	b.run(chromedp.SendKeys("#token", "junk"), chromedp.Submit("#token"))
	b.await("junk is refused", "document.body.innerText.includes('does not accept this token')")
	b.shot("login")
	b.login("/")
	if cookie := script[string](b, "document.cookie"); cookie != "" {
		t.Errorf("scripts can read %s", cookie)
	}

	for _, p := range []struct{ name, path, heading, text string }{
		{"fleet", "/", "Fleet", "1000 clusters"},
		{"works", "/works?state=failed", "Works", "1–50 of 500 works"},
		{"cluster", "/clusters/cluster-0004", "Cluster cluster-0004", "1–10 of 10 works"},
		{"work", "/works/cluster-0001/pay-7", "Work pay-7", "exceeded quota"},
		{"yaml", "/works/cluster-0001/pay-7/yaml", "YAML of work pay-7", "password: (hidden)"},
		{"replicasets", "/replicasets", "Replica sets", "2 replica sets"},
		{"replicaset", "/replicasets/apps/shop", "Replica set apps/shop", "120 of 500"},
		{"live", "/live", "Live", "Nothing has changed yet"},
	} {
		t.Run(p.name, func(t *testing.T) {
			b.t = t
			b.visit(p.path)
			text := script[string](b, "document.body.innerText.replace(/\\s+/g, ' ')")
			if !strings.Contains(text, p.text) || script[string](b, "document.querySelector('h1').innerText") != p.heading {
				t.Errorf("no %q, %q in %s", p.heading, p.text, text)
			}
			b.checkPaint(p.name)
			b.checkAccessibility()
			b.checkLayout(p.name)
		})
	}
	b.t = t
	b.checkFilter()
	b.checkKeyboard()
	b.checkExpanded(stub, works[7])
	b.checkLive(stub, works[7])

	b.run(chromedp.Click("form[action='/logout'] button"))
	b.await("signed out", "document.querySelector('#token') !== null")
}

// checkPaint logs how long a page took until something was seen.
func (b *tab) checkPaint(name string) {
	b.t.Helper()
	b.await("a paint", "performance.getEntriesByName('first-contentful-paint').length > 0")
	paint := script[float64](b, "performance.getEntriesByName('first-contentful-paint')[0].startTime")
	size := script[float64](b, "performance.getEntriesByType('navigation')[0].encodedBodySize")
	b.t.Logf("%s: first contentful paint after %.0f ms, %.0f bytes", name, paint, size)
	if *paintLimit > 0 && paint > float64(paintLimit.Milliseconds()) {
		b.t.Errorf("first paint of %s after %.0f ms", name, paint)
	}
}

// checkAccessibility reads the page as a screen reader does: landmarks, one first heading, headers of
// tables, and a name for everything that one can use.
func (b *tab) checkAccessibility() {
	b.t.Helper()
	tree := get(b, func(ctx context.Context, t *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	text := func(v *accessibility.Value) string {
		if v == nil {
			return ""
		}
		return strings.Trim(string(v.Value), `"`)
	}
	roles := map[string]int{}
	for _, node := range tree.Nodes {
		role := text(node.Role)
		if node.Ignored {
			continue
		}
		roles[role]++
		if slices.Contains([]string{"link", "button", "DisclosureTriangle", "textbox", "searchbox", "combobox", "navigation", "region", "table", "image", "search", "log"}, role) && text(node.Name) == "" {
			b.t.Errorf("a %s without a name", role)
		}
	}
	for role, atLeast := range map[string]int{"banner": 1, "main": 1, "contentinfo": 1, "navigation": 1, "heading": 1, "link": 5} {
		if roles[role] < atLeast {
			b.t.Errorf("%d of role %s: %v", roles[role], role, roles)
		}
	}
	if roles["table"] > 0 && (roles["columnheader"] == 0 || roles["rowheader"] == 0) {
		b.t.Errorf("a table without headers: %v", roles)
	}
	if n := script[int](b, "document.querySelectorAll('h1').length"); n != 1 {
		b.t.Errorf("%d first headings", n)
	}
}

// checkFilter types into the filter of the works.
func (b *tab) checkFilter() {
	b.t.Helper()
	b.visit("/works")
	script[bool](b, "window.stays = true")
	b.run(chromedp.SendKeys("#q", "cluster-0777"))
	b.await("the filter applies while one types", "location.search.includes('q=cluster-0777') && document.querySelectorAll('tbody tr').length === 10")
	if !script[bool](b, "window.stays && document.activeElement.id === 'q'") {
		b.t.Error("the page was left, or the focus")
	}
	b.run(chromedp.Reload(), chromedp.WaitReady("footer"))
	if !script[bool](b, "document.querySelectorAll('tbody tr').length === 10 && document.querySelector('#q').value === 'cluster-0777'") {
		b.t.Error("the URL does not hold the filter")
	}
	b.visit("/works?selector=team%3Dpay")
	b.run(chromedp.Click("#next"))
	b.await("the next page", "document.body.innerText.includes('page 2 of') && location.search.includes('selector=team')")
}

// checkKeyboard uses the keyboard only.
func (b *tab) checkKeyboard() {
	b.t.Helper()
	b.visit("/")
	b.run(chromedp.KeyEvent(kb.Tab))
	if got := script[string](b, "document.activeElement.innerText"); got != "Skip to content" {
		b.t.Errorf("the first stop is %q", got)
	}
	b.run(chromedp.KeyEvent(kb.Enter))
	b.await("the content has the focus", "document.activeElement.id === 'main'")
	outline := script[string](b, "document.querySelector('header nav a').focus({focusVisible: true}), getComputedStyle(document.activeElement).outlineStyle")
	if outline == "none" {
		b.t.Error("the focus is not shown")
	}
}

// scheme has pages see a colour scheme that the user prefers.
func scheme(name string) chromedp.Action[chromedp.Void] {
	return command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// window has pages see a window of a size, without a scale of its own.
func window(width, height int64) chromedp.Action[chromedp.Void] {
	return command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
}

// Elements that stand out of the window, unless they are in something that scrolls, and short texts that are broken into lines.
const (
	tooWide = `Array.from(document.querySelectorAll('body *')).filter(e => !e.closest('.scroll, pre, .hidden, .skip') && e.getClientRects().length > 0 &&
		(e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < 0)).map(e => e.outerHTML.slice(0, 100)).join('; ')`
	broken = `Array.from(document.querySelectorAll('label, dt, button, .state, .tag, thead th, header nav a, td > a, .legend a, time')).filter(e => {
		const range = document.createRange();
		range.selectNodeContents(e);
		const height = range.getBoundingClientRect().height;
		return height > 1.8 * parseFloat(getComputedStyle(e).lineHeight || 20);
	}).map(e => e.outerHTML.slice(0, 100)).join('; ')`
)

// checkLayout looks at the page in wide and narrow windows, in both themes: nothing is beyond the window, and no label is broken.
func (b *tab) checkLayout(name string) {
	b.t.Helper()
	backgrounds := map[string]bool{}
	for _, width := range []int64{1400, 420} {
		for _, theme := range []string{"light", "dark"} {
			b.run(window(width, 900), scheme(theme))
			if page := script[int64](b, "document.documentElement.scrollWidth"); page > width {
				b.t.Errorf("%d px: the page is %d wide", width, page)
			}
			if beyond := script[string](b, tooWide); beyond != "" {
				b.t.Errorf("%d px: beyond the window: %s", width, beyond)
			}
			if lines := script[string](b, broken); lines != "" {
				b.t.Errorf("%d px: in more than one line: %s", width, lines)
			}
			backgrounds[script[string](b, "getComputedStyle(document.body).backgroundColor")] = true
			b.shot(fmt.Sprintf("%s-%d-%s", name, width, theme))
		}
	}
	if len(backgrounds) != 2 {
		b.t.Errorf("both themes look alike: %v", backgrounds)
	}
	b.run(window(1400, 900), scheme("light"))
}

// checkExpanded: a message is read to its end once expanded, and stays so while the page refreshes itself.
func (b *tab) checkExpanded(stub *stubAPI, work *workv1.ManifestWork) {
	b.t.Helper()
	b.run(window(420, 900))
	b.visit("/works?state=failed")
	b.await("the page follows", "document.querySelector('#follow').dataset.state === 'on'")
	id := "why-" + work.Namespace + "/" + work.Name
	summary := "document.getElementById('" + id + "').firstElementChild"
	cut := summary + ".scrollWidth > " + summary + ".clientWidth"
	if !script[bool](b, cut) {
		b.t.Error("the message is not cut before it is expanded")
	}
	script[bool](b, summary+".click(), "+summary+".marked = true")
	b.await("the whole message", "!("+cut+") && "+summary+".innerText.includes('limited: cpu=10')")
	stub.change(b.t, work)
	b.await("the page has refreshed itself, and the message is expanded", "!"+summary+".marked && "+summary+".parentElement.open")
	b.run(window(1400, 900))
	b.visit("/works/" + work.Namespace + "/" + work.Name)
	if hidden := script[int](b, "document.querySelectorAll('.copy[hidden]').length"); hidden != 0 {
		b.t.Errorf("%d buttons that copy are hidden on loopback", hidden)
	}
	if text := script[string](b, "document.querySelector('.commands').innerText"); !strings.Contains(text, "workctl explain work "+work.Name+" -n "+work.Namespace) {
		b.t.Errorf("commands: %s", text)
	}
	if text := script[string](b, "document.querySelector('#h-events').parentElement.innerText"); !strings.Contains(text, "AppliedManifestWorkFailed") {
		b.t.Errorf("events: %s", text)
	}
}

// checkLive: a page that is open shows a change, in place.
func (b *tab) checkLive(stub *stubAPI, work *workv1.ManifestWork) {
	b.t.Helper()
	b.visit("/works/" + work.Namespace + "/" + work.Name)
	b.await("the page follows", "document.querySelector('#follow').dataset.state === 'on'")
	script[bool](b, "window.stays = true")
	ready := work.DeepCopy()
	for i := range ready.Status.Conditions {
		c := &ready.Status.Conditions[i]
		if c.Status, c.Message = yes, "as it should be"; c.Type == workv1.WorkProgressing {
			c.Status = no
		}
	}
	stub.change(b.t, ready)
	b.await("the page shows the change", "document.querySelector('.facts .state').innerText === 'ready'")
	if !script[bool](b, "window.stays === true") {
		b.t.Error("the page was loaded again")
	}
	b.visit("/live")
	b.await("the page follows", "document.querySelector('#follow').dataset.state === 'on'")
	b.await("the change before", "document.querySelectorAll('#feed li').length === 1")
	failed := ready.DeepCopy()
	for i := range failed.Status.Conditions {
		if failed.Status.Conditions[i].Type == workv1.WorkApplied {
			failed.Status.Conditions[i].Status, failed.Status.Conditions[i].Message = no, "exceeded quota"
		}
	}
	stub.change(b.t, failed)
	b.await("the feed has the change", "document.querySelectorAll('#feed li').length === 2 && document.querySelector('#feed li').innerText.includes('failed')")
	b.shot("live")
}

// shot writes a screenshot, if asked to.
func (b *tab) shot(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	shot := get(b, func(ctx context.Context, t *chromedp.Target) (devtools.CaptureScreenshotResult, error) {
		return cdp.Call(ctx, t, devtools.CaptureScreenshot, devtools.CaptureScreenshotParams{Format: devtools.CaptureScreenshotFormatPng})
	})
	kit.NoError(b.t, os.MkdirAll(*screenshots, 0o755))
	kit.NoError(b.t, os.WriteFile(filepath.Join(*screenshots, "dashboard-"+name+".png"), fewColours(b.t, shot.Data), 0o644))
}

// fewColours returns a PNG with at most 256 of its colours, which is a third as long.
func fewColours(t testing.TB, data []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(data))
	kit.NoError(t, err)
	count := map[color.Color]int{}
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			count[full.At(x, y)]++
		}
	}
	var palette color.Palette
	near := map[[3]uint32]bool{} // of colours that look alike, the most common is enough
	for _, c := range slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] }) {
		r, g, b, _ := c.RGBA()
		if key := [3]uint32{r >> 12, g >> 12, b >> 12}; !near[key] && len(palette) < 256 {
			near[key], palette = true, append(palette, c)
		}
	}
	few := image.NewPaletted(full.Bounds(), palette)
	index := map[color.Color]uint8{}
	for c := range count {
		index[c] = uint8(palette.Index(c))
	}
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			few.SetColorIndex(x, y, index[full.At(x, y)])
		}
	}
	var b bytes.Buffer
	kit.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, few))
	return b.Bytes()
}
