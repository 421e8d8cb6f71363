/* How blocks that other threads free come home, as a model that spin checks in every interleaving.
 *
 * What is modelled: Slab::give_remotely, announce and collect, Inbox (slab/), collect_inbox
 * (heap/remote.hpp), settle and retire (heap/release.hpp), attach, detach, surrender, abandon,
 * adopt and reap_orphans (heap/lifetime.hpp), trim (heap/purge.hpp), and the stable descriptors of
 * Space::allocate_described, whose announcement and remote bits survive their reuse.
 *
 * Each access to what threads share without a lock (announced, owner, remote bits, the head of an
 * inbox) is a step of its own, under sequential consistency, which the code asks for throughout.
 * Joined to one step are only accesses that nobody can come between to any effect: what is private
 * or under the lock together with one shared access; a look at a word together with the exchange
 * that follows if the look says so; the loop around a compare-and-exchange.
 *
 * Not modelled: that the helper, or malloc_trim, acts for an owner (heap/rest.hpp). They do so while
 * nobody is within a slow path, that is, in the midst of any of this.
 *
 * Checked: a slab is in at most one inbox and at most once; who finds an inbox closed need not wait
 * for it; no block comes home twice; and when nothing moves any more, every block that was freed
 * has come home, or lies in an orphan for an adopter to collect; and nothing counts as announced
 * that is in no inbox.
 *
 * The size of the world is set by SLABS (descriptors, 1 or 2), THREADS (that own slabs, each of
 * which may bring a domain of its own), FREERS (threads that only free), STEPS (slow operations of
 * an owner) and CREATIONS (slabs ever made); TIDY adds what only tidies up: reap_orphans and trim.
 * Each of the other names, if defined, breaks the protocol in one way, which spin must notice:
 *   BROKEN_ORDER     the owner looks at the bits before it clears the announcement
 *   NO_RECHECK       a thread that finds no owner does not look again
 *   CLOSE_FIRST      an owner closes its inbox before it gives up its slabs
 *   COLLECT_FIRST    an adopter collects before it names itself
 *   DROP_AT_CLOSE    who closes an inbox forgets the slabs of others in it
 *   NO_FORWARD       who finds the slab of another in its inbox forgets it
 *   RESET_ON_REUSE   a new slab forgets that its descriptor was announced
 */

#ifndef SLABS
#define SLABS 1
#endif
#ifndef THREADS
#define THREADS 2
#endif
#ifndef FREERS
#define FREERS 2
#endif
#ifndef STEPS
#define STEPS 3
#endif
#ifndef CREATIONS
#define CREATIONS 2
#endif

#define ALL 3     /* a mask of the blocks of a slab: two */
#define NIL 7     /* no slab */
#define CLOSED 6  /* in place of an inbox's first slab */
#define NOBODY 7  /* no domain */

mtype = { is_free, is_owned, is_orphan };

/* What threads share without a lock. `next` belongs to whoever is pushing the slab, then to whoever
 * has taken the inbox. In the code, `announced` and `next` are one word, the slab's link. */
byte owner[SLABS] = NOBODY;
bit announced[SLABS];
byte next[SLABS] = NIL;
byte remote[SLABS];
byte head[THREADS] = CLOSED; /* a domain that was never used counts as one in the pool */

/* Under the lock, or of the slab's owner alone. */
bit registry; /* the lock */
mtype state[SLABS] = is_free;
byte bin[SLABS] = NOBODY; /* the domain in whose lists the slab is */
byte free[SLABS];
bit pooled[THREADS] = 1;

/* Of the program: blocks in use, which somebody will free. */
byte used[SLABS];
#if SLABS == 1
#define SOMETHING_USED (used[0] != 0)
#else
#define SOMETHING_USED (used[0] != 0 || used[1] != 0)
#endif

/* For the proof only. */
bit in_inbox[SLABS];
byte creations;
byte begun;
byte owners_at_work = THREADS;
byte freers_at_work = FREERS;

/* --- slab/ ------------------------------------------------------------------------------------- */

/* Uses the locals own and old. */
inline announce(s) {
  d_step { old = announced[s]; announced[s] = 1 };
  do
  :: old -> break
  :: else ->
    own = owner[s];
    if
    :: own != NOBODY ->
      d_step {
        assert(!in_inbox[s]);
        if
        :: head[own] != CLOSED ->
          next[s] = head[own];
          head[own] = s;
          in_inbox[s] = 1;
          old = 1
        :: else -> assert(owner[s] != own) /* or it would ask again for ever */
        fi;
        own = NOBODY
      }
    :: else ->
      announced[s] = 0;
#ifdef NO_RECHECK
      break;
#endif
      if
      :: owner[s] == NOBODY -> break
      :: else -> d_step { old = announced[s]; announced[s] = 1 }
      fi
    fi
  od;
  old = 0;
  own = NOBODY
}

/* To be used in a d_step. */
inline collect(s) {
  assert((free[s] & remote[s]) == 0);
  free[s] = free[s] | remote[s];
  remote[s] = 0
}
inline accept(s) { announced[s] = 0; in_inbox[s] = 0 }

/* --- heap/ ------------------------------------------------------------------------------------- */

inline retire(s) {
  d_step { owner[s] = NOBODY; state[s] = is_free; bin[s] = NOBODY; free[s] = 0 }
}

/* An owner may keep a slab that has become empty; whether it does is left open. */
inline settle(s) {
  if
  :: free[s] == ALL && announced[s] == 0 ->
    if
    :: retire(s)
    :: skip
    fi
  :: else -> skip
  fi
}

/* Takes the next slab of the list in `slab`. */
inline take_next() {
#ifdef BROKEN_ORDER
  following = next[slab]
#else
  d_step { following = next[slab]; accept(slab) }
#endif
}

/* Uses the locals slab, following and those of the above. */
inline collect_inbox(d) {
  d_step { slab = head[d]; head[d] = NIL };
  do
  :: slab == NIL -> break
  :: else ->
    take_next();
    if
    :: atomic { owner[slab] == d -> d_step { collect(slab) } };
#ifdef BROKEN_ORDER
      d_step { accept(slab) };
#endif
      settle(slab)
    :: atomic { owner[slab] != d -> skip };
#ifdef BROKEN_ORDER
      d_step { accept(slab) };
#endif
#ifndef NO_FORWARD
      announce(slab)
#endif
    fi;
    d_step { slab = following; following = NIL }
  od
}

/* A new slab, of which the program gets one block or both. */
inline create(d) {
  atomic {
    slab = 0;
    do
    :: slab < SLABS && state[slab] != is_free -> slab++
    :: else -> break
    od;
    if
    :: slab < SLABS && creations < CREATIONS ->
      creations++;
      state[slab] = is_owned;
      bin[slab] = d;
#ifdef RESET_ON_REUSE
      announced[slab] = 0;
#endif
      if
      :: free[slab] = 0
      :: free[slab] = 2
      fi;
      owner[slab] = d;
      used[slab] = ALL & ~free[slab]
    :: else -> skip
    fi;
    slab = NIL
  }
}

/* The owner frees a block of its own. */
inline free_own(d) {
  d_step {
    slab = 0;
    do
    :: slab < SLABS && (bin[slab] != d || used[slab] == 0) -> slab++
    :: else -> break
    od;
    if
    :: slab < SLABS ->
      bits = used[slab] & (~used[slab] + 1);
      used[slab] = used[slab] & ~bits;
      free[slab] = free[slab] | bits;
      bits = 0
    :: else -> slab = NIL
    fi
  };
  if
  :: slab != NIL -> settle(slab)
  :: else -> skip
  fi;
  slab = NIL
}

inline adopt(d) {
  atomic {
    registry == 0 ->
    slab = 0;
    do
    :: slab == SLABS -> slab = NIL; break
    :: slab < SLABS && state[slab] == is_orphan && (free[slab] != 0 || remote[slab] != 0) ->
      registry = 1;
#ifdef COLLECT_FIRST
      d_step { collect(slab) };
#else
      owner[slab] = d;
#endif
      break
    :: else -> slab++
    od
  };
  if
  :: slab != NIL ->
    d_step {
#ifdef COLLECT_FIRST
      owner[slab] = d;
#else
      collect(slab);
#endif
      state[slab] = is_owned;
      bin[slab] = d;
      registry = 0;
      slab = NIL
    }
  :: else -> skip
  fi
}

inline reap_orphans() {
  atomic { registry == 0 -> registry = 1; slab = 0 };
  do
  :: slab == SLABS -> break
  :: slab < SLABS && state[slab] == is_orphan ->
    d_step {
      collect(slab);
      if
      :: free[slab] == ALL -> state[slab] = is_free; free[slab] = 0
      :: else -> skip
      fi;
      slab++
    }
  :: slab < SLABS && state[slab] != is_orphan -> slab++
  od;
  atomic { registry = 0; slab = NIL }
}

/* Retires what is empty, announced or not: the strictest case. */
inline trim(d) {
  collect_inbox(d);
  slab = 0;
  do
  :: slab == SLABS -> break
  :: slab < SLABS && bin[slab] == d && free[slab] == ALL -> retire(slab); slab++
  :: slab < SLABS && !(bin[slab] == d && free[slab] == ALL) -> slab++
  od;
  slab = NIL
}

inline give_up_slabs(d) {
  slab = 0;
  do
  :: slab == SLABS -> break
  :: slab < SLABS && bin[slab] == d -> d_step { owner[slab] = NOBODY; slab++ }
  :: slab < SLABS && bin[slab] != d -> slab++
  od
}

inline close_inbox(d) {
  d_step { slab = head[d]; head[d] = CLOSED };
  do
  :: slab == NIL -> break
  :: else ->
    d_step { following = next[slab]; accept(slab) };
#ifndef DROP_AT_CLOSE
    announce(slab);
#endif
    d_step { slab = following; following = NIL }
  od
}

inline abandon_slabs(d) {
  slab = 0;
  do
  :: slab == SLABS -> break
  :: slab < SLABS && bin[slab] == d ->
    d_step {
      collect(slab);
      bin[slab] = NOBODY;
      if
      :: free[slab] == ALL -> state[slab] = is_free; free[slab] = 0
      :: else -> state[slab] = is_orphan
      fi;
      slab++
    }
  :: slab < SLABS && bin[slab] != d -> slab++
  od;
  slab = NIL
}

inline detach(d) {
  collect_inbox(d);
  atomic { registry == 0 -> registry = 1 };
#ifdef CLOSE_FIRST
  close_inbox(d);
  give_up_slabs(d);
#else
  give_up_slabs(d);
  close_inbox(d);
#endif
  abandon_slabs(d);
  d_step { pooled[d] = 1; registry = 0 }
}

/* The first domain of the pool; there is one for each thread. Threads are all alike, so it is enough
 * to look at them in one order of their beginnings. */
inline attach() {
  atomic {
    registry == 0 && begun == _pid ->
    begun++;
    domain = 0;
    do
    :: pooled[domain] -> break
    :: else -> domain++
    od;
    pooled[domain] = 0;
    head[domain] = NIL
  }
}

/* --- threads ----------------------------------------------------------------------------------- */

active [THREADS] proctype Owner() {
  byte domain = NOBODY, steps = 0, slab = NIL, following = NIL, own = NOBODY, bits = 0;
  bit old = 0;

  attach();
  do
  :: steps < STEPS ->
    if
    :: create(domain)
    :: free_own(domain)
    :: head[domain] != NIL -> collect_inbox(domain)
    :: adopt(domain)
#ifdef TIDY
    :: reap_orphans()
    :: trim(domain)
#endif
    fi;
    steps++
  :: break
  od;
  steps = 0;
  if
  :: detach(domain); owners_at_work--
  :: owners_at_work--;
    /* A thread that lives on looks at its inbox whenever there is something in it. */
end_of_work:
    do
    :: head[domain] != NIL -> collect_inbox(domain)
    od
  fi
}

active [FREERS] proctype Freer() {
  byte slab = NIL, own = NOBODY;
  bit old = 0;

  do
  :: atomic {
       SOMETHING_USED ->
       slab = 0;
       do
       :: used[slab] != 0 -> break
#if SLABS > 1
       :: slab == 0 && used[1] != 0 -> slab = 1
#endif
       od;
       if
       :: used[slab] & 1 -> used[slab] = used[slab] & ~1; own = 1
       :: used[slab] & 2 -> used[slab] = used[slab] & ~2; own = 2
       fi;
       assert((remote[slab] & own) == 0);
       remote[slab] = remote[slab] | own;
       own = NOBODY
     };
     announce(slab);
     slab = NIL
  :: atomic { owners_at_work == 0 && !SOMETHING_USED -> break }
  od;
  freers_at_work--
}

/* Looks when nobody can do anything any more. */
active proctype Auditor() {
  byte s = 0;
  atomic {
    timeout ->
    assert(freers_at_work == 0 && owners_at_work == 0);
    do
    :: s == SLABS -> break
    :: else ->
      assert(used[s] == 0);
      assert(!announced[s] && !in_inbox[s]);
      assert(state[s] == is_orphan || remote[s] == 0);
      assert((state[s] == is_owned) == (owner[s] != NOBODY));
      s++
    od
  }
}
