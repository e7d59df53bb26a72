package dashboard

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/test/kit"
)

// do sends a request and returns the code and the body.
func (s *site) do(client *http.Client, r *http.Request) (int, string, http.Header) {
	s.t.Helper()
	response, err := client.Do(r)
	kit.NoError(s.t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	kit.NoError(s.t, err)
	return response.StatusCode, string(body), response.Header
}

// get asks for a path with a token.
func (s *site) get(path, token string) (int, string) {
	s.t.Helper()
	code, body, _ := s.do(http.DefaultClient, s.request(http.MethodGet, path, token))
	return code, body
}

// createWork creates a work.
func createWork(t testing.TB, namespace, name string) {
	t.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{
		Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}`)}}}
	_, err := versioned.NewForConfigOrDie(plane.REST()).WorkV1().ManifestWorks(namespace).Create(t.Context(), work, metav1.CreateOptions{})
	kit.NoError(t, err)
}

// awaitText waits until a page contains a text.
func (s *site) awaitText(path, token, text string) {
	s.t.Helper()
	kit.Eventually(s.t, path+" shows "+text, func() error {
		if code, body := s.get(path, token); code != http.StatusOK || !strings.Contains(body, text) {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

// TestAccess: a viewer sees the clusters in whose namespaces it may list works, and nobody sees
// anything without a token that the API server accepts.
func TestAccess(t *testing.T) {
	east, west := plane.Namespace(t, "east"), plane.Namespace(t, "west")
	createWork(t, east, "shop")
	createWork(t, west, "pay")
	s := startSite(t, plane.REST())
	all, _ := account(t, east, "all")
	one, _ := account(t, east, "one")
	none, noneUser := account(t, east, "none")
	mayList(t, east, "all", "")
	mayList(t, east, "one", east)
	for _, c := range []struct {
		name, path, token string
		code              int
		has, lacks        []string
	}{
		{name: "all: fleet", path: "/", token: all, code: 200, has: []string{east, west}},
		{name: "all: works", path: "/works?q=" + west, token: all, code: 200, has: []string{"pay"}, lacks: []string{"shop"}},
		{name: "all: a cluster", path: "/clusters/" + west, token: all, code: 200, has: []string{"pay"}},
		{name: "all: a work", path: "/works/" + west + "/pay", token: all, code: 200, has: []string{"ClusterNotFound", "What to do"}},
		{name: "one: fleet", path: "/", token: one, code: 200, has: []string{east, "1</span> cluster<"}, lacks: []string{west, "pay"}},
		{name: "one: works", path: "/works", token: one, code: 200, has: []string{"shop"}, lacks: []string{west, "pay"}},
		{name: "one: its cluster", path: "/clusters/" + east, token: one, code: 200, has: []string{"shop"}},
		{name: "one: another cluster", path: "/clusters/" + west, token: one, code: 404, lacks: []string{"pay"}},
		{name: "one: another work", path: "/works/" + west + "/pay", token: one, code: 404, lacks: []string{"has not answered"}},
		{name: "one: a work that does not exist", path: "/works/" + east + "/nothing", token: one, code: 404},
		{name: "one: live", path: "/live", token: one, code: 200, lacks: []string{west}},
		{name: "one: replica sets of a namespace", path: "/replicasets/" + west + "/x", token: one, code: 404},
		{name: "none: fleet", path: "/", token: none, code: 200, has: []string{noneUser, "no clusters"}, lacks: []string{west, "shop"}},
		{name: "none: a work", path: "/works/" + east + "/shop", token: none, code: 404},
		{name: "no such page", path: "/nothing", token: all, code: 404},
		{name: "nobody: fleet", path: "/", code: 401, has: []string{"Sign in"}, lacks: []string{east, west}},
		{name: "nobody: a work", path: "/works/" + east + "/shop", code: 401, has: []string{"Sign in"}, lacks: []string{"ConfigMap"}},
		{name: "nobody: no such page", path: "/nothing", code: 401},
		{name: "nobody: events", path: "/events", code: 401},
		{name: "junk", path: "/", token: "junk", code: 401, has: []string{"Sign in"}, lacks: []string{east}},
		{name: "another's signature", path: "/works", token: all[:len(all)-4] + "AAAA", code: 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, body := s.get(c.path, c.token)
			if code != c.code {
				t.Fatalf("code %d, want %d: %s", code, c.code, body)
			}
			for _, text := range c.has {
				if !strings.Contains(body, text) {
					t.Errorf("no %q in %s", text, body)
				}
			}
			for _, text := range append(c.lacks, one, all, none) {
				if strings.Contains(body, text) {
					t.Errorf("%q in the page", text)
				}
			}
		})
	}
	for _, token := range []string{all, one, none} {
		if strings.Contains(s.log.String(), token) {
			t.Error("a token is in the log")
		}
	}
}

// TestRightsEnd: what a viewer may see is asked again after half a minute.
func TestRightsEnd(t *testing.T) {
	cluster := plane.Namespace(t, "cluster")
	createWork(t, cluster, "shop")
	s := startSite(t, plane.REST())
	token, _ := account(t, cluster, "viewer")
	mayList(t, cluster, "viewer", cluster)
	s.awaitText("/works", token, "shop")
	rbac := kubernetes.NewForConfigOrDie(plane.REST()).RbacV1().RoleBindings(cluster)
	kit.NoError(t, rbac.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	kit.Eventually(t, "the work is gone from the page", func() error {
		s.clock.Add(accessAge)
		if code, body := s.get("/works", token); code != 200 || strings.Contains(body, "shop") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

// browser returns a client with cookies that follows no redirects.
func browser(t testing.TB) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	kit.NoError(t, err)
	return &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (s *site) post(client *http.Client, path string, form url.Values, headers ...string) (int, string, http.Header) {
	s.t.Helper()
	r := s.request(http.MethodPost, path, "")
	r.Body = io.NopCloser(strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return s.do(client, r)
}

func TestLogin(t *testing.T) {
	cluster := plane.Namespace(t, "cluster")
	createWork(t, cluster, "shop")
	s := startSite(t, plane.REST())
	token, user := account(t, cluster, "viewer")
	mayList(t, cluster, "viewer", cluster)
	client := browser(t)
	form := url.Values{"token": {" " + token + "\n"}, "next": {"/works?q=shop"}}
	if code, body, _ := s.post(client, "/login", form, "Sec-Fetch-Site", "cross-site"); code != http.StatusForbidden {
		t.Errorf("another site's form: %d %s", code, body)
	}
	if code, body, _ := s.post(client, "/login", url.Values{"token": {"junk"}}); code != http.StatusUnauthorized || !strings.Contains(body, "does not accept this token") {
		t.Errorf("junk: %d %s", code, body)
	}
	code, body, header := s.post(client, "/login", form)
	cookie := header.Get("Set-Cookie")
	if code != http.StatusSeeOther || header.Get("Location") != "/works?q=shop" {
		t.Fatalf("login: %d %v %s", code, header, body)
	}
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("no %s in the cookie", want)
		}
	}
	if strings.Contains(cookie, token) || strings.Contains(header.Get("Location"), token) {
		t.Error("the token is in the answer")
	}
	works := func() (int, string) {
		code, body, _ := s.do(client, s.request(http.MethodGet, "/works", ""))
		return code, body
	}
	if code, body := works(); code != 200 || !strings.Contains(body, "shop") || !strings.Contains(body, user) {
		t.Errorf("after the login: %d %s", code, body)
	}
	s.clock.Add(sessionIdle)
	if code, _ := works(); code != http.StatusUnauthorized {
		t.Errorf("after an hour: %d", code)
	}
	if code, _, _ := s.post(client, "/login", form); code != http.StatusSeeOther {
		t.Fatal("no second login")
	}
	held := client.Jar.Cookies(s.request(http.MethodGet, "/", "").URL)
	if code, _, _ := s.post(client, "/logout", nil); code != http.StatusSeeOther {
		t.Error("no logout")
	}
	client.Jar.SetCookies(s.request(http.MethodGet, "/", "").URL, held)
	if code, _ := works(); code != http.StatusUnauthorized {
		t.Errorf("a cookie that was signed out: %d", code)
	}
	if code, _, _ := s.post(client, "/login", url.Values{"token": {strings.Repeat("x", loginBody)}}); code != http.StatusBadRequest {
		t.Errorf("a form that is too large: %d", code)
	}
	if strings.Contains(s.log.String(), token) {
		t.Error("the token is in the log")
	}
}

func TestHeaders(t *testing.T) {
	s := startSite(t, plane.REST())
	_, body, header := s.do(http.DefaultClient, s.request(http.MethodGet, "/", ""))
	policy := header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("no %s in the policy %s", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(body, " style=") || strings.Contains(body, "<style") || strings.Contains(body, " onclick") {
		t.Error("inline styles or scripts")
	}
	if got := header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("pages are kept: %s", got)
	}
	version := s.pages.version
	for _, asset := range []string{"dashboard.css", "dashboard.js", "htmx.min.js", "icon.svg"} {
		code, _, header := s.do(http.DefaultClient, s.request(http.MethodGet, "/assets/"+asset+"?v="+version, ""))
		if code != 200 || !strings.Contains(header.Get("Cache-Control"), "immutable") || strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %d %v", asset, code, header)
		}
	}
	for _, path := range []string{"/assets/nothing", "/assets/..%2ftemplates%2flayout.html"} {
		if code, _ := s.get(path, ""); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
	if code, _, _ := s.do(http.DefaultClient, s.request(http.MethodDelete, "/works/a/b", "")); code != http.StatusMethodNotAllowed {
		t.Errorf("DELETE: %d", code)
	}
}

// reader reads the events of a stream.
type reader struct {
	t     testing.TB
	lines chan string // closed at the end
	code  int
}

func (s *site) open(path, token string) *reader {
	s.t.Helper()
	response, err := http.DefaultClient.Do(s.request(http.MethodGet, path, token))
	kit.NoError(s.t, err)
	s.t.Cleanup(func() { _ = response.Body.Close() })
	r := &reader{t: s.t, lines: make(chan string, 1000), code: response.StatusCode}
	go func() {
		defer close(r.lines)
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			r.lines <- lines.Text()
		}
	}()
	return r
}

// await waits for a line that contains text; "" for the end.
func (r *reader) await(text string) {
	r.t.Helper()
	timeout := time.After(kit.Patience)
	for {
		select {
		case line, ok := <-r.lines:
			switch {
			case !ok && text == "":
				return
			case !ok:
				r.t.Fatalf("the stream ended before %q", text)
			case text != "" && strings.Contains(line, text):
				return
			}
		case <-timeout:
			r.t.Fatalf("no %q in the stream", text)
		}
	}
}

// TestStream: a stream tells of changes, the feed only of what its viewer may see, their number is
// bounded, and they end with the token, and with the dashboard.
func TestStream(t *testing.T) {
	t.Parallel()
	cluster, other := plane.Namespace(t, "cluster"), plane.Namespace(t, "other")
	s := startSite(t, plane.REST())
	token, user := account(t, cluster, "viewer")
	mayList(t, cluster, "viewer", cluster)
	createWork(t, cluster, "first")
	s.awaitText("/works", token, "first")
	pages, feed := s.open("/events?version=0", token), s.open("/events?feed=0", token)
	pages.await("event: changed")
	feed.await("first")
	createWork(t, other, "secret")
	createWork(t, cluster, "second")
	pages.await("event: changed")
	timeout := time.After(kit.Patience)
	for found := false; !found; {
		select {
		case line := <-feed.lines:
			if strings.Contains(line, "secret") {
				t.Fatal("the feed shows what the viewer may not see")
			}
			found = strings.Contains(line, "second")
		case <-timeout:
			t.Fatal("no second work in the feed")
		}
	}
	for range maxViewerStreams - 2 {
		if r := s.open("/events", token); r.code != 200 {
			t.Fatalf("a stream: %d", r.code)
		}
	}
	if r := s.open("/events", token); r.code != http.StatusServiceUnavailable {
		t.Errorf("one stream too many: %d", r.code)
	}
	accounts := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().ServiceAccounts(cluster)
	kit.NoError(t, accounts.Delete(t.Context(), strings.TrimPrefix(user, "system:serviceaccount:"+cluster+":"), metav1.DeleteOptions{}))
	kit.Eventually(t, "the token ends", func() error {
		s.clock.Add(tokenAge)
		if code, _ := s.get("/", token); code != http.StatusUnauthorized {
			return errors.New("it is accepted")
		}
		return nil
	})
	pages.await("event: end")
	pages.await("")
	feed.await("")

	second, _ := account(t, cluster, "second")
	last := s.open("/events", second)
	last.await("retry")
	s.stop()
	last.await("")
}

// TestChangedPage: a page that a stream tells of a change gets it when it fetches itself, also within a second after its last snapshot.
func TestChangedPage(t *testing.T) {
	cluster := plane.Namespace(t, "cluster")
	token, _ := account(t, cluster, "viewer")
	mayList(t, cluster, "viewer", cluster)
	start, later := time.Now(), atomic.Bool{}
	s := startSite(t, plane.REST(), func(c *Config) {
		c.Now = func() time.Time {
			if later.Load() {
				return start.Add(snapshotAge)
			}
			return start
		}
	})
	who, err := s.auth.viewer(t.Context(), token)
	kit.NoError(t, err)
	before, w := s.fleet.snapshot().version, httptest.NewRecorder()
	stream := &stream{d: s.Dashboard, r: s.request(http.MethodGet, "/events", token), viewer: who, w: w, control: http.NewResponseController(w), version: before}
	createWork(t, cluster, "shop")
	kit.True(t, "the change is noted", func() bool { return s.fleet.changes.Load() > before })
	for _, told := range []bool{false, true} {
		later.Store(told)
		kit.NoError(t, stream.send(t.Context()))
		if got := strings.Contains(w.Body.String(), "event: changed"); got != told {
			t.Errorf("told of the change: %v, want %v", got, told)
		}
		if _, body := s.get("/works", token); !strings.Contains(body, fmt.Sprintf(`data-version="%d"`, stream.version)) {
			t.Errorf("the page is not that of version %d, which the stream has told: %s", stream.version, body)
		}
	}
}

// TestNotices: pages say what their replica cannot vouch for.
func TestNotices(t *testing.T) {
	namespace := plane.Namespace(t, "cluster")
	token, _ := account(t, namespace, "viewer")
	no := func() bool { return false }
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"standby":   {func(c *Config) { c.Leading = no; c.Connected = no }, "stands by"},
		"no broker": {func(c *Config) { c.Connected = no }, "no connection to the broker"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSite(t, plane.REST(), c.change)
			if code, body := s.get("/", token); code != 200 || !strings.Contains(body, c.want) {
				t.Errorf("%d %s", code, body)
			}
		})
	}
}

// TestTLS: with a certificate the cookie is for TLS only.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	manager, err := certificates.New(certificates.ManagerConfig{Dir: dir, Config: certificates.Config{
		Certificates: []certificates.Certificate{{Name: "dashboard", Role: certificates.Server, Hosts: []string{"127.0.0.1"}}},
	}})
	kit.NoError(t, err)
	_, err = manager.Ensure()
	kit.NoError(t, err)
	namespace := plane.Namespace(t, "cluster")
	s := startSite(t, plane.REST(), func(c *Config) {
		c.Options.CertFile, c.Options.KeyFile = filepath.Join(dir, "dashboard", "tls.crt"), filepath.Join(dir, "dashboard", "tls.key")
	})
	s.url = "https://" + s.Addr()
	trusted, err := os.ReadFile(filepath.Join(dir, "dashboard", "ca.crt"))
	kit.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted)
	client := browser(t)
	client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(client.CloseIdleConnections)
	token, user := account(t, namespace, "viewer")
	code, _, header := s.post(client, "/login", url.Values{"token": {token}})
	if cookie := header.Get("Set-Cookie"); code != http.StatusSeeOther || !strings.HasPrefix(cookie, "__Host-") || !strings.Contains(cookie, "; Secure") {
		t.Errorf("login: %d %s", code, cookie)
	}
	if code, body, _ := s.do(client, s.request(http.MethodGet, "/", "")); code != 200 || !strings.Contains(body, user) {
		t.Errorf("%d %s", code, body)
	}
}

// TestWorkOpened: who opens the page of a work reads its YAML without the values of Secrets, and its events, if the API server lists
// them to this viewer: the hub lends no right of its own.
func TestWorkOpened(t *testing.T) {
	cluster := plane.Namespace(t, "cluster")
	client := versioned.NewForConfigOrDie(plane.REST()).WorkV1().ManifestWorks(cluster)
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{
		Raw: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"login","namespace":"default"},"stringData":{"password":"hunter"}}`)}}}
	work, err := client.Create(t.Context(), work, metav1.CreateOptions{})
	kit.NoError(t, err)
	createWork(t, cluster, "pay")
	recordEvent(t, work, "TooLarge", "the spec of shop is too large")
	other, err := client.Get(t.Context(), "pay", metav1.GetOptions{})
	kit.NoError(t, err)
	recordEvent(t, other, "TooLarge", "the spec of pay is too large")

	s := startSite(t, plane.REST())
	few, _ := account(t, cluster, "few")
	mayList(t, cluster, "few", cluster)
	more, _ := account(t, cluster, "more")
	mayList(t, cluster, "more", cluster, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list"}})
	none, _ := account(t, cluster, "none")

	page := "/works/" + cluster + "/shop"
	s.awaitText(page, more, "the spec of shop is too large")
	if _, body := s.get(page, more); strings.Contains(body, "the spec of pay") {
		t.Error("an event of another work")
	}
	if _, body := s.get(page, few); !strings.Contains(body, "You may not list events in the namespace "+cluster) || strings.Contains(body, "too large") {
		t.Errorf("without the right to list events: %s", body)
	}
	r := s.request(http.MethodGet, page, more)
	r.Header.Set("Dashboard-Refresh", "1")
	if _, body, _ := s.do(http.DefaultClient, r); strings.Contains(body, "too large") {
		t.Error("a page that refreshes itself lists the events again")
	}
	s.awaitText(page+"/yaml", few, "uid: "+string(work.UID))
	if _, body := s.get(page+"/yaml", few); !strings.Contains(body, "password: (hidden)") || strings.Contains(body, "hunter") || strings.Contains(body, "managedFields") {
		t.Errorf("YAML: %s", body)
	}
	for _, path := range []string{page + "/yaml", page, "/works/" + cluster + "/nothing/yaml"} {
		if code, body := s.get(path, none); code != http.StatusNotFound || strings.Contains(body, string(work.UID)) {
			t.Errorf("%s, without rights: %d", path, code)
		}
	}
}

// recordEvent records a warning about a work as the hub does.
func recordEvent(t testing.TB, work *workv1.ManifestWork, reason, message string) {
	t.Helper()
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	kubeScheme := runtime.NewScheme()
	kit.NoError(t, workv1.AddToScheme(kubeScheme))
	sink := &typedcorev1.EventSinkImpl{Interface: kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().Events("")}
	broadcaster.StartRecordingToSink(sink)
	broadcaster.NewRecorder(kubeScheme, corev1.EventSource{Component: "work-hub"}).Event(work, corev1.EventTypeWarning, reason, message)
	kit.Eventually(t, "the event is stored", func() error {
		list, err := sink.Interface.List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(work.UID)})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("no event")
		}
		return err
	})
}

// TestFleetSizes: pages of a fleet of any size are small, because lists have pages, and fit the window; that of a standby too.
func TestFleetSizes(t *testing.T) {
	for _, count := range []int{1, 30, 10_000} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			works, clusters := exampleFleet(count, max(1, 4000/count/40))
			leading := func() bool { return count != 30 }
			s := startSite(t, newStub(t, works, clusters, exampleSets()).serve(t), func(c *Config) { c.Leading = leading })
			s.clock.set(epoch.Add(time.Hour))
			const most = 64 << 10 // about 45 KB
			for _, path := range []string{"/", "/works", "/?page=200", "/clusters/cluster-0001"} {
				begin := time.Now()
				code, body := s.get(path, stubToken)
				t.Logf("%s: %d bytes in %s", path, len(body), time.Since(begin))
				if rows := strings.Count(body, "<tr>"); code != http.StatusOK || len(body) > most || rows > pageSize+10 {
					t.Errorf("%s: %d, %d bytes with %d rows", path, code, len(body), rows)
				}
			}
			t.Run("in Chromium", func(t *testing.T) {
				b := openTab(t, s)
				b.t = t
				defer b.finish()
				b.login("/")
				b.checkLayout(fmt.Sprintf("fleet-of-%d", count))
			})
		})
	}
}
