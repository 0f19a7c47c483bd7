// What a member says and hears, as JSON: each call in a function. Which of them comes next is in member.go.

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/url"
	"time"
)

// connect opens a channel where the group has moved, or with the coordinator that a look-up finds.
func (m *Member) connect(ctx context.Context) error {
	m.mutex.Lock()
	coordinator := m.named
	m.channel, m.named = nil, ""
	if coordinator != "" {
		m.redirects++
	}
	m.mutex.Unlock()
	if coordinator == "" {
		err := m.ask(func(node string) (err error) {
			coordinator, err = m.lookUp(ctx, node)
			return err
		})
		if err != nil {
			return err
		}
	}
	m.mutex.Lock()
	m.url = coordinator
	m.mutex.Unlock()
	m.nodes.learn(coordinator)
	s, err := openChannel(ctx, coordinator, m.options.Credentials, m.hear)
	if err != nil {
		return err
	}
	m.mutex.Lock()
	m.channel = s
	m.mutex.Unlock()
	return nil
}

// moveOn: the node of this channel coordinates the group no longer. If it names the one that does, go there at once;
// else, or where nodes send each other the member, the look-up before the next channel finds it.
func (m *Member) moveOn(s *channel, named string) {
	m.mutex.Lock()
	isCurrent := s == m.channel // else it is a late word of a node before
	if isCurrent && m.redirects < redirectsMost {
		m.named = destination(m.url, named)
	}
	m.mutex.Unlock()
	if isCurrent {
		s.connection.CloseNow()
	}
}

// lookUp gives the URL of the coordinator, as the node at this URL has it.
func (m *Member) lookUp(ctx context.Context, node string) (string, error) {
	var found struct {
		Coordinators []struct {
			URL       string `json:"url"`
			ErrorCode int    `json:"error_code"`
			ErrorName string `json:"error_name"`
		} `json:"coordinators"`
	}
	path := "/v1/coordinator?group_id=" + url.QueryEscape(m.options.GroupID)
	if err := get(ctx, node, path, m.options.Credentials, &found); err != nil {
		return "", err
	}
	if len(found.Coordinators) == 0 {
		return "", fmt.Errorf("%w: %s names no coordinator", errDisconnected, node)
	}
	named := found.Coordinators[0]
	if named.ErrorCode != 0 {
		return "", &Problem{ErrorName: named.ErrorName, Detail: node + " knows no coordinator", Retriable: true}
	}
	if lowersScheme(node, named.URL) {
		return "", fmt.Errorf("%s names %s, without TLS", node, named.URL)
	}
	coordinator := destination(node, named.URL)
	if coordinator == "" {
		return "", fmt.Errorf("%w: %s names %q, which is no URL of a node", errDisconnected, node, named.URL)
	}
	return coordinator, nil
}

// ask asks one node after another until one has an answer.
func (m *Member) ask(question func(node string) error) error {
	var failure error
	for _, node := range m.nodes.all() {
		if failure = question(node); failure == nil {
			return nil
		}
		switch nameOf(failure) {
		case "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR":
		default:
			if !errors.Is(failure, errDisconnected) {
				return failure
			}
			m.nodes.askLast(node)
		}
	}
	return failure
}

// lookElsewhere: the coordinator is about to stop. If another node has the group already there is nothing to wait for.
func (m *Member) lookElsewhere(leaving string, s *channel) {
	m.nodes.askLast(leaving)
	err := m.ask(func(node string) error {
		named, err := m.lookUp(context.Background(), node)
		if err == nil && named != leaving {
			m.moveOn(s, named)
		}
		return err
	})
	if err != nil {
		log.Printf("the coordinator stops, and the next one is not known yet: %v", err)
	}
}

// call calls until there is an answer that says more than "wait". It gives when it sent what is answered.
func (m *Member) call(ctx context.Context, op string, body map[string]any, result any, held time.Duration) (time.Time, error) {
	for attempts := 1; ; attempts++ {
		sentAt := time.Now()
		s := m.currentChannel()
		if s == nil {
			return sentAt, errDisconnected
		}
		again, err := s.call(ctx, op, m.options.GroupID, body, result, held)
		switch nameOf(err) {
		case "NOT_COORDINATOR":
			m.moveOn(s, err.(*Problem).URL)
			return sentAt, err
		case "COORDINATOR_LOAD_IN_PROGRESS", "THROTTLING_QUOTA_EXCEEDED", "UNSTABLE_OFFSET_COMMIT":
			pause(ctx, pauseAfter(attempts))
		default:
			if err != nil || !again {
				return sentAt, err
			}
		}
		if ctx.Err() != nil {
			if err == nil {
				err = ctx.Err()
			}
			return sentAt, err // the refusal, if there was one
		}
	}
}

// Commit stores the next offsets to read. When it returns nil, they are on disk. The generation is that in which the
// program had the partitions: a commit that comes too late is refused, and cannot undo what the next owner has done.
// Commits go one after another: an older one that is repeated must not come after a newer one.
func (m *Member) Commit(ctx context.Context, generation int, offsets Offsets) error {
	type offset struct {
		Offset int64 `json:"offset"`
	}
	wanted := map[string]map[int]offset{}
	for topic, numbers := range offsets {
		wanted[topic] = map[int]offset{}
		for number, next := range numbers {
			wanted[topic][number] = offset{next}
		}
	}
	m.committing.Lock()
	defer m.committing.Unlock()
	id, _ := m.Identity()
	var answer struct {
		Offsets map[string]map[int]struct {
			ErrorCode int    `json:"error_code"`
			ErrorName string `json:"error_name"`
		} `json:"offsets"`
	}
	body := map[string]any{"generation_id": generation, "member_id": id, "offsets": wanted}
	if _, err := m.call(ctx, "commit", body, &answer, 0); err != nil {
		return err
	}
	for topic, numbers := range answer.Offsets {
		for number, result := range numbers {
			if result.ErrorCode != 0 {
				return &Problem{ErrorName: result.ErrorName, Detail: fmt.Sprintf("%s/%d", topic, number)}
			}
		}
	}
	return nil
}

type joinAnswer struct {
	GenerationID        int      `json:"generation_id"`
	ProtocolType        string   `json:"protocol_type"`
	ProtocolName        string   `json:"protocol_name"`
	Leader              string   `json:"leader"`
	Members             []Joined `json:"members"`
	HeartbeatIntervalMs int      `json:"heartbeat_interval_ms"`
	ChannelKeepsSession bool     `json:"channel_keeps_session"`
}

func (m *Member) join(ctx context.Context) error {
	if m.joinID == "" {
		m.joinID = randomID()
		m.attempt++
	}
	id, _ := m.Identity()
	metadata := map[string]any{"topics": m.options.Topics}
	joined := &joinAnswer{}
	_, err := m.call(ctx, "join", map[string]any{
		"member_id":            id,
		"client_id":            m.options.ClientID,
		"protocol_type":        "consumer",
		"protocols":            []any{map[string]any{"name": "range", "metadata": metadata}},
		"session_timeout_ms":   m.options.SessionTimeout.Milliseconds(),
		"rebalance_timeout_ms": m.options.RebalanceTimeout.Milliseconds(),
		"request_id":           m.joinID,
		"attempt":              m.attempt,
		"max_wait_ms":          parkTime.Milliseconds(),
	}, joined, parkTime)
	if err != nil {
		return err
	}
	m.joinID, m.joined = "", joined
	m.interval = time.Duration(joined.HeartbeatIntervalMs) * time.Millisecond
	if joined.ChannelKeepsSession {
		// It needs no heartbeats. A few tell this side that it is not cut off, as pings would.
		m.interval = m.options.SessionTimeout / 3
	}
	m.mutex.Lock()
	m.generation = joined.GenerationID
	m.mutex.Unlock()
	return nil
}

// sync gets this member's partitions, and when it asked for them. The leader sends the assignment of all. The session goes
// on from the answer, and how long that was on its way nobody knows: so it counts from the asking, and the service may hold
// the answer back for a part of it.
func (m *Member) sync(ctx context.Context, joined *joinAnswer) (Partitions, time.Time, error) {
	id, _ := m.Identity()
	assignments := []any{}
	if joined.Leader == id {
		var err error
		if assignments, err = m.assign(ctx, joined.Members); err != nil {
			return nil, time.Time{}, err
		}
	}
	held := m.options.SessionTimeout / 4
	if held > parkTime {
		held = parkTime
	}
	var synced struct {
		Assignment json.RawMessage `json:"assignment"`
	}
	sentAt, err := m.call(ctx, "sync", map[string]any{
		"generation_id": joined.GenerationID,
		"member_id":     id,
		"protocol_type": joined.ProtocolType,
		"protocol_name": joined.ProtocolName,
		"assignments":   assignments,
		"max_wait_ms":   held.Milliseconds(),
	}, &synced, held)
	if err != nil {
		return nil, sentAt, err
	}
	partitions, err := readAssignment(synced.Assignment)
	if err != nil {
		return nil, sentAt, fmt.Errorf("what the leader gave cannot be read: %w", err)
	}
	return partitions, sentAt, nil
}

// assign gives what the leader says. Who cannot be read gets nothing, and stops nobody.
func (m *Member) assign(ctx context.Context, members []Joined) ([]any, error) {
	counts, err := m.partitionCounts(ctx)
	if err != nil {
		return nil, err
	}
	for i, member := range members {
		told, err := readSubscription(member.Metadata)
		if err != nil {
			log.Printf("%s gets nothing, for its metadata cannot be read: %v", member.MemberID, err)
			continue
		}
		members[i].Topics = told.Topics
	}
	shares := assignRange(members, counts)
	var assignments []any
	for _, member := range members {
		assignment := writeAssignment(member.Metadata, shares[member.MemberID])
		assignments = append(assignments, map[string]any{"member_id": member.MemberID, "assignment": assignment})
	}
	return assignments, nil
}

func (m *Member) partitionCounts(ctx context.Context) (map[string]int, error) {
	var registry struct {
		Topics []struct {
			Topic      string `json:"topic"`
			Partitions int    `json:"partitions"`
		} `json:"topics"`
	}
	err := m.ask(func(node string) error {
		err := get(ctx, node, "/v1/topics", m.options.Credentials, &registry)
		if err == nil && registry.Topics == nil {
			return fmt.Errorf("%w: %s names no topics", errDisconnected, node)
		}
		return err
	})
	counts := map[string]int{}
	for _, topic := range registry.Topics {
		counts[topic.Topic] = topic.Partitions
	}
	return counts, err
}

// fetch gives what was committed of these partitions.
func (m *Member) fetch(ctx context.Context, partitions Partitions) (Offsets, error) {
	var answer struct {
		Offsets map[string]map[int]struct {
			Offset int64 `json:"offset"`
		} `json:"offsets"`
	}
	if _, err := m.call(ctx, "fetch", map[string]any{"topics": m.options.Topics}, &answer, 0); err != nil {
		return nil, err
	}
	offsets := Offsets{}
	for topic, numbers := range partitions {
		offsets[topic] = map[int]int64{}
		for _, number := range numbers {
			if committed, found := answer.Offsets[topic][number]; found {
				offsets[topic][number] = committed.Offset
			}
		}
	}
	return offsets, nil
}

func isRetriable(err error) bool {
	var problem *Problem
	if errors.As(err, &problem) {
		return problem.Retriable
	}
	return errors.Is(err, errDisconnected) || errors.Is(err, context.DeadlineExceeded)
}

func nameOf(err error) string {
	var problem *Problem
	if errors.As(err, &problem) {
		return problem.ErrorName
	}
	return ""
}

func randomID() string {
	bytes := make([]byte, 16)
	if _, err := rand.Read(bytes); err != nil {
		panic(err)
	}
	return hex.EncodeToString(bytes)
}
