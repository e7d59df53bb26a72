package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// Limits of sessions.
const (
	sessionIdle = time.Hour     // since the last request
	sessionLife = 8 * time.Hour // since the login
	maxSessions = 500
)

// sessions hold the tokens of those who have used the login form. A browser gets a random id in place
// of the token: cookies of 127.0.0.1 go to every port of the machine.
type sessions struct {
	now func() time.Time

	mu   sync.Mutex            // a request beside a logout does not bring the session back
	held *cache.LRUExpireCache // guarded by mu: of session, by digest of the id
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, held: newCache(maxSessions, now)}
}

type session struct {
	token   string
	created time.Time
}

// create begins a session and returns its id. The session of the oldest request ends if there are
// too many.
func (s *sessions) create(token string) string {
	id := rand.Text() + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.use(sha256.Sum256([]byte(id)), session{token: token, created: s.now()})
	return id
}

// use has a session end later. The caller holds mu.
func (s *sessions) use(key [sha256.Size]byte, held session) {
	s.held.Add(key, held, min(sessionIdle, held.created.Add(sessionLife).Sub(s.now()))-1)
}

// token returns the token of a session, "" if there is none. used says whether that counts as a
// request of somebody.
func (s *sessions) token(id string, used bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sha256.Sum256([]byte(id))
	found, _ := s.held.Get(key)
	held, ok := found.(session)
	if ok && used {
		s.use(key, held)
	}
	return held.token
}

// end ends a session.
func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.Remove(sha256.Sum256([]byte(id)))
}

// bearer returns the token in the Authorization header, "" if there is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// cookieName returns the name of the cookie. With TLS its prefix has browsers refuse one that
// another host or plain HTTP has set.
func cookieName(secure bool) string {
	if secure {
		return "__Host-workwire-dashboard"
	}
	return "workwire-dashboard"
}

// newCookie returns the cookie with the id of a session; "" removes it.
func newCookie(id string, secure bool) *http.Cookie {
	cookie := &http.Cookie{Name: cookieName(secure), Value: id, Path: "/", HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode}
	if id == "" {
		cookie.MaxAge = -1
	}
	return cookie
}
