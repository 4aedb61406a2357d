-- What a principal searched for, and the calls that followed, are read when it comes back.

CREATE INDEX contexts_by_principal ON contexts (principal, id);

CREATE INDEX invocations_by_context ON invocations (context, id) WHERE context IS NOT NULL;
