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

	mu   sync.Mutex            // held to renew a session and to end one, or a request under way would bring back what has ended
	held *cache.LRUExpireCache // of session, by digest of the id
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, held: cache.NewLRUExpireCacheWithClock(maxSessions, clock(now))}
}

type session struct {
	token string
	ends  time.Time
}

// create begins a session and returns its id. The session that was asked for longest ago ends if there
// are too many.
func (s *sessions) create(token string) string {
	id := rand.Text() + rand.Text()
	s.held.Add(sha256.Sum256([]byte(id)), session{token: token, ends: s.now().Add(sessionLife)}, sessionIdle)
	return id
}

// token returns the token of a session, "" if there is none. used says whether that counts as a
// request of somebody.
func (s *sessions) token(id string, used bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sha256.Sum256([]byte(id))
	held, ok := s.held.Get(key)
	if !ok {
		return ""
	}
	of := held.(session)
	if used {
		s.held.Add(key, of, min(sessionIdle, of.ends.Sub(s.now())))
	}
	return of.token
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
