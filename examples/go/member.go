// A member of a group over a channel (docs/channels.md): joins, leads when it is told to, keeps alive, commits.
//
// What lives here is what every program needs, whatever it reads. It gives up all partitions before it joins again
// ("eager"). One goroutine, that of Run, does everything in order; pushes only wake it.

package main

import (
	"context"
	"errors"
	"log"
	"math/rand"
	"sync"
	"time"
)

const (
	parkTime      = 20 * time.Second // how long a join or a sync may be held back before it is asked again
	backoff       = 100 * time.Millisecond
	backoffMost   = 2 * time.Second
	redirectsMost = 3 // followed in a row, until a node answers; one more means that the nodes disagree
)

// Partitions by topic.
type Partitions map[string][]int

// Offsets by topic and partition: each is the next one to read.
type Offsets map[string]map[int]int64

// Handler is what the program does with its partitions. One method runs at a time; until it returns the member does
// nothing else, no heartbeat either, so let it be much shorter than the session timeout.
type Handler interface {
	// Assigned: read these from now on. A partition that nobody has committed has no offset.
	Assigned(member *Member, partitions Partitions, offsets Offsets)
	// Revoked: stop reading them, and commit; others get them next.
	Revoked(member *Member, partitions Partitions)
	// Lost: stop reading them; others may have them already, and a commit would be refused.
	Lost(member *Member, partitions Partitions)
}

// Options of a member. Coordinator is the URL of any node, or of several with commas between.
type Options struct {
	Credentials
	Coordinator, GroupID, ClientID   string
	Topics                           []string
	SessionTimeout, RebalanceTimeout time.Duration
}

// Member is made by NewMember. Run, Commit and Identity may be called by different goroutines.
type Member struct {
	options Options
	handler Handler
	nodes   *nodes
	wake    chan struct{} // of one place: something is to be looked at

	handling   sync.Mutex // held while a method of the handler runs
	committing sync.Mutex // held while a commit is on its way

	mutex     sync.Mutex // guards what follows
	channel   *channel
	url       string // the coordinator's
	named     string // where the group has moved, as the coordinator said; empty once it is followed
	redirects int    // how many were followed since a node has answered
	id        string
	// generation is the one last joined, ending the newest that is known to be over.
	generation, ending int
	owned              Partitions // nil without an assignment
	expiry             *time.Timer
	beatAt             time.Time // when the next heartbeat is due
	askedUntil         time.Time // once it was dropped, why so is not asked again before

	// Of the goroutine that runs:
	interval time.Duration // between heartbeats, as the join's answer says
	joinID   string        // names a join until it is answered, so that sending it again is harmless
	attempt  int           // counts the joins, so that the service knows one that comes late
	joined   *joinAnswer   // the answer to a join that has no sync yet
}

// NewMember makes a member that has not joined yet.
func NewMember(options Options, handler Handler) *Member {
	return &Member{options: options, handler: handler, wake: make(chan struct{}, 1), generation: -1, ending: -1}
}

// Identity is the member id, empty before there is one, and the generation.
func (m *Member) Identity() (string, int) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.id, m.generation
}

// Run is a member until ctx is done, then leaves. The error is one that trying again does not help.
func (m *Member) Run(ctx context.Context) error {
	nodes, err := nodesIn(m.options.Coordinator)
	if err != nil {
		return err
	}
	m.nodes = nodes
	attempts, missed, before := 0, false, "" // before: the coordinator that answered last
	answered := func() {
		now := m.coordinator()
		if before != "" && before != now {
			log.Printf("coordinator moved from %s to %s", before, now)
		} else if missed {
			log.Printf("coordinator %s answers", now)
		}
		attempts, missed, before = 0, false, now
		m.mutex.Lock()
		m.redirects = 0
		m.mutex.Unlock()
	}
	for ctx.Err() == nil {
		if !m.knowsWhere() {
			if attempts > 0 {
				pause(ctx, pauseAfter(attempts))
			}
			attempts++
		}
		err := m.follow(ctx, answered)
		if ctx.Err() != nil {
			break
		}
		if s := m.currentChannel(); s != nil {
			s.close()
		}
		if !isRetriable(err) {
			return err
		}
		if m.knowsWhere() {
			continue
		}
		if !missed {
			log.Printf("connecting again: %v", err)
		}
		missed = true
		if errors.Is(err, errDisconnected) {
			m.nodes.askLast(m.coordinator())
		}
	}
	m.leave()
	return nil
}

// hear takes a push.
func (m *Member) hear(s *channel, push Push) {
	m.mutex.Lock()
	isCurrent, url := s == m.channel, m.url
	if isCurrent && push.Event == "rebalance" && push.GenerationID > m.ending {
		m.ending = push.GenerationID
	}
	m.mutex.Unlock()
	if !isCurrent {
		return // it is being closed
	}
	if push.Event == "unloaded" {
		m.moveOn(s, push.URL)
	}
	if push.Event == "drain" && m.nodes.hasOther(url) {
		go m.lookElsewhere(url, s)
	}
	if push.Event == "dropped" && !m.mayAsk() {
		return
	}
	select {
	case m.wake <- struct{}{}:
	default: // it is to look already
	}
}

// mayAsk: the member has not asked for a while why it was dropped. If another process has the same member id, each
// heartbeat of one has the other dropped.
func (m *Member) mayAsk() bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if time.Now().Before(m.askedUntil) {
		return false
	}
	m.askedUntil = time.Now().Add(m.options.SessionTimeout / 3)
	return true
}

func (m *Member) currentChannel() *channel {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.channel
}

func (m *Member) coordinator() string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.url
}

// knowsWhere: the group has moved, and the coordinator said where to.
func (m *Member) knowsWhere() bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.named != ""
}

// settled: it has an assignment, and knows of no rebalance.
func (m *Member) settled() bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.owned != nil && m.ending < m.generation
}

// follow is a member's life on one channel. Who had an assignment on the one before says at once that it lives.
func (m *Member) follow(ctx context.Context, onAnswer func()) error {
	if err := m.connect(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		step := m.rejoin
		if m.settled() {
			step = m.beat
		}
		if err := m.learn(step(ctx)); err != nil {
			return err
		}
		onAnswer()
		if m.settled() {
			m.rest(ctx)
		}
	}
	return ctx.Err()
}

// rest waits until the next heartbeat, or until something is to be looked at.
func (m *Member) rest(ctx context.Context) {
	m.mutex.Lock()
	timer := time.NewTimer(time.Until(m.beatAt))
	m.mutex.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.wake:
	case <-m.currentChannel().closed:
	case <-ctx.Done():
	}
}

func (m *Member) beat(ctx context.Context) error {
	id, generation := m.Identity()
	body := map[string]any{"generation_id": generation, "member_id": id}
	sentAt, err := m.call(ctx, "heartbeat", body, &struct{}{}, 0)
	if err == nil {
		m.live(sentAt)
	}
	return err
}

// rejoin gives up what it has, joins, and gets the new part, unless the next rebalance begins before.
func (m *Member) rejoin(ctx context.Context) error {
	m.giveUp(m.handler.Revoked)
	if m.joined == nil {
		if err := m.join(ctx); err != nil {
			return err
		}
	}
	partitions, sentAt, err := m.sync(ctx, m.joined)
	if err != nil {
		return err
	}
	offsets, err := m.fetch(ctx, partitions)
	if err != nil {
		return err
	}
	if time.Since(sentAt) >= m.options.SessionTimeout {
		return nil // others may have them already: the next sync tells
	}
	m.joined = nil
	m.handling.Lock() // first, so that the program hears of these before it may hear that they are lost
	defer m.handling.Unlock()
	m.mutex.Lock()
	m.owned = partitions
	m.mutex.Unlock()
	m.live(sentAt)
	m.handler.Assigned(m, partitions, offsets)
	return nil
}

// learn takes what a refusal says about the membership; any other error is given back.
func (m *Member) learn(err error) error {
	name := nameOf(err)
	switch name {
	case "REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID":
		m.joined = nil
	case "MEMBER_ID_REQUIRED":
	default:
		return err
	}
	m.mutex.Lock()
	switch name {
	case "REBALANCE_IN_PROGRESS":
		m.ending, m.joinID = m.generation, ""
	case "UNKNOWN_MEMBER_ID":
		m.id, m.joinID = "", ""
	case "MEMBER_ID_REQUIRED":
		m.id = err.(*Problem).MemberID
	}
	m.mutex.Unlock()
	if name == "ILLEGAL_GENERATION" || name == "UNKNOWN_MEMBER_ID" {
		m.giveUp(m.handler.Lost)
	}
	return nil
}

// live: the group has heard of the member after sentAt. Without such news for a session timeout, others take over.
func (m *Member) live(sentAt time.Time) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.expiry != nil {
		m.expiry.Stop()
	}
	m.beatAt = sentAt.Add(m.interval) // at once where the answer was long on its way
	m.expiry = time.AfterFunc(time.Until(sentAt.Add(m.options.SessionTimeout)), func() { m.giveUp(m.handler.Lost) })
}

// giveUp tells the program to let go.
func (m *Member) giveUp(tell func(*Member, Partitions)) {
	m.handling.Lock()
	defer m.handling.Unlock()
	m.mutex.Lock()
	if m.expiry != nil {
		m.expiry.Stop()
	}
	partitions := m.owned
	m.owned = nil
	m.mutex.Unlock()
	if partitions != nil {
		tell(m, partitions)
	}
}

func (m *Member) leave() {
	m.giveUp(m.handler.Revoked)
	id, _ := m.Identity()
	s := m.currentChannel()
	if s == nil {
		return
	}
	if id != "" {
		body := map[string]any{"members": []any{map[string]any{"member_id": id, "reason": "stopped"}}}
		if _, err := s.call(context.Background(), "leave", m.options.GroupID, body, &struct{}{}, 0); err != nil {
			log.Printf("the group will notice by itself: %v", err)
		}
	}
	s.close()
}

// pauseAfter grows with the attempts, of which there was one at least. Many members do not come together.
func pauseAfter(attempts int) time.Duration {
	most := backoffMost
	if attempts < 6 { // so that doubling stays below
		most = backoff << (attempts - 1)
	}
	return most/2 + time.Duration(rand.Int63n(int64(most/2)))
}

func pause(ctx context.Context, duration time.Duration) {
	select {
	case <-time.After(duration):
	case <-ctx.Done():
	}
}
